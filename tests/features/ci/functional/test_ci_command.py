"""`ci parse` and `ci run` read the requested run from a comment on a pull request."""

from __future__ import annotations

import json

import pytest
import yaml

from toolbox.features.ci.commands.ci import Ci
from toolbox.ground.model.errors import UsageError
from toolbox.testing import Workspace

COMMENT = """Thanks, this looks good. Please run it once more:

/test small loud
/var greeting: "a: b"
/var commands.cleanup:
  - touch $ARTIFACT_DIR/cleaned
  - "true"
/skip prepare

```
/test training_e2e large
```
> /test training_e2e
"""
HOSTILE = '"; touch pwned; $(touch pwned2) `touch pwned3` \'"'


def test_parse_prints_the_request_of_a_comment_and_runs_nothing(small: Workspace) -> None:
    outcome = small.run("ci", "parse", f"--text={COMMENT}", "--format=json")
    assert outcome.exit_code == 0, str(outcome)
    test = {
        "project": "small",
        "job": None,
        "presets": ["loud"],
        "overrides": {"greeting": "a: b", "commands.cleanup": ["touch $ARTIFACT_DIR/cleaned", "true"]},
        "skip": ["prepare"],
        "only": [],
        "cells": [],
        "cluster": None,
        "quarantine": [],
    }
    assert outcome.json == {"tests": [test], "retest": [], "cancel": False, "help": False}
    assert yaml.safe_load(small.run("ci", "parse", f"--text={COMMENT}").stdout) == outcome.json
    assert not small.artifacts.exists()


@pytest.mark.parametrize("command", ["parse", "run"])
def test_help_is_printed(small: Workspace, command: str) -> None:
    outcome = small.run("ci", command, "--text=/help")
    assert outcome.exit_code == 0
    assert "/var PATH: VALUE" in outcome.stdout


def test_run_executes_the_request_and_saves_the_overrides(small: Workspace) -> None:
    outcome = small.run("ci", "run", f"--text={COMMENT}")
    assert outcome.exit_code == 0, str(outcome)
    assert [step["name"] for step in small.summary()["steps"]] == ["test", "post_cleanup"]
    first = small.run_directory()
    again = small.run(
        "project", "run", "small", "--presets=loud", f"--overrides={first}/variable_overrides.yaml", "--format=json"
    )
    assert again.exit_code == 0, str(again)
    (second,) = set(small.runs()) - {first}
    assert (second / "config.yaml").read_bytes() == (first / "config.yaml").read_bytes()
    assert yaml.safe_load((first / "config.yaml").read_text())["greeting"] == "a: b"


def test_a_run_that_a_comment_requests_is_not_part_of_the_baseline(small: Workspace) -> None:
    assert small.run("ci", "run", "--text=/test small").exit_code == 0
    assert small.run("project", "run", "small").exit_code == 0
    rows = small.run("results", "list", "--format=json").json
    assert [row["baseline"] for row in rows] == [True, False]


def test_only_runs_the_given_phases(small: Workspace) -> None:
    outcome = small.run("ci", "run", "--text=/test small\n/only post_cleanup\n", "--format=json")
    assert [step["name"] for step in outcome.json["steps"]] == ["post_cleanup"]


def test_a_failed_run_has_the_exit_code_of_its_verdict(small: Workspace) -> None:
    assert small.run("ci", "run", "--text=/test small both").exit_code == 1


def test_hostile_text_in_a_comment_stays_text(small: Workspace) -> None:
    text = f"/test small\n/var greeting: {json.dumps(HOSTILE)}\n"
    assert small.run("ci", "run", f"--text={text}").exit_code == 0
    assert yaml.safe_load((small.run_directory() / "config.yaml").read_text())["greeting"] == HOSTILE
    assert not list(small.directory.rglob("*pwned*"))


def test_every_unparsable_line_is_named(small: Workspace) -> None:
    outcome = small.run("ci", "parse", "--text=/tset small\n/test small\n/var x\n/only test\n/skip test\n")
    assert outcome.exit_code == 2
    for number in (1, 3, 5):
        assert f"\n  line {number}: " in outcome.stderr
    assert "cannot be used together" in outcome.stderr


ATTACKS = {
    "the command of a workload": "/var matrix.workload.command: [touch, pwned]",
    "a parent of the command": "/var matrix: {axes: {}, workload: {command: [touch, pwned]}}",
    "an axis that sets the command": "/var matrix.axes: {matrix.workload.command: [[touch, pwned]]}",
    "the program by a reference": "/var program: ./pwn",
    "a field that is not listed": "/var other: 1",
    "the list itself": "/var ci.overridable: ['**']",
    "a preset": "/var ci_presets.to_apply: [loud]",
    "a target": "/var targets: {local: {backend: ssh, host: evil}}",
    "an environment variable": "/var matrix.workload.env.A: b",
    "a file to send": "/var matrix.workload.files: {x: /etc/passwd}",
    "another secret": "/var secrets.token: other",
    "a secret by a reference": "/var greeting: '*$@secrets.token'",
    "a secret in a text": "/var greeting: 'a {@token} b'",
    "a field by a reference": "/var greeting: '@secrets'",
    "a reference deep in a value": "/var greeting: {a: [{b: '@token'}]}",
    "a long value": f"/var greeting: {'x' * 20_000}",
    "a deep value": f"/var greeting: {'[' * 40}{']' * 40}",
    "many values": f"/var greeting: [{'1,' * 5000}]",
    "a long comment": "x" * 70_000,
}
GUARDED = """
    ci: {overridable: [greeting, program, "matrix.**", "**.token"]}
    ci_presets: {to_apply: null, loud: {greeting: HELLO}}
    secrets: {dir: {env_key: VAULT}, token: token}
    token: "*$@secrets.token"
    greeting: hello
    program: python3
    other: 0
    matrix:
      axes: {}
      workload:
        command: ["@program", -c, "print('{@greeting}')"]
        env: {A: a}
"""


@pytest.fixture
def guarded(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """Return a workspace with a project whose comments may change few fields, and set the variable of its secrets."""
    orchestration = '"""Attacked."""\nfrom toolbox.orchestration import matrix\n\ndef test():\n    matrix.run()\n'
    workspace.write({"config/guarded.yaml": GUARDED, "held/token": "secret-token"})
    monkeypatch.setenv("VAULT", str(workspace.directory / "held"))
    return workspace.write({"projects/guarded/orchestration.py": orchestration})


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_a_comment_changes_only_overridable_fields(
    guarded: Workspace, monkeypatch: pytest.MonkeyPatch, attack: str
) -> None:
    monkeypatch.chdir(guarded.directory)
    with pytest.raises(UsageError) as caught:
        Ci().parse(f"/test guarded\n{attack}\n")
    assert "secret-token" not in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 5
    assert not list(guarded.directory.rglob("*pwned*"))


@pytest.mark.parametrize("attack", ["the command of a workload", "a field that is not listed", "a secret in a text"])
def test_a_comment_that_changes_another_field_runs_nothing(guarded: Workspace, attack: str) -> None:
    environment = {"VAULT": str(guarded.directory / "held")}
    outcome = guarded.run("ci", "run", f"--text=/test guarded\n{ATTACKS[attack]}\n", env=environment)
    assert outcome.exit_code == 2, str(outcome)
    assert "secret-token" not in outcome.stdout + outcome.stderr
    assert len(outcome.stderr.splitlines()) <= 5
    assert not guarded.artifacts.exists()
    assert not list(guarded.directory.rglob("*pwned*"))


def test_a_refusal_tells_how_a_maintainer_can_allow_the_change(small: Workspace) -> None:
    outcome = small.run("ci", "run", "--text=/test small\n/var tag: '2'")
    assert outcome.exit_code == 2
    assert "a comment may not change `tag`" in outcome.stderr
    assert "`ci: {overridable: [tag]}` in config/small.yaml" in outcome.stderr


def test_the_comment_in_the_readme_is_allowed(workspace: Workspace) -> None:
    text = "/test training_e2e smoke\n/var training.settings.steps: 50\n/skip post_cleanup\n"
    outcome = workspace.run("ci", "parse", f"--text={text}", "--format=json")
    assert outcome.exit_code == 0, str(outcome)
    (test,) = outcome.json["tests"]
    assert test["overrides"] == {"training.settings.steps": 50}
