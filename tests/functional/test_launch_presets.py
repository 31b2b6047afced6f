"""Runs without a comment select their presets by the job of the CI system, and by the cluster or platform."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from toolbox.records.runs.layout import RunDirectory
from toolbox.testing import Outcome, Workspace

RULES = """
    ci_presets:
      to_apply: null
      names: null
      light: {size: 1, profile: light}
      metal: {size: 8, profile: metal}
      nightly: {rounds: 100}
    ci:
      jobs:
        nightly: {presets: [nightly], target: local, when: {job: "periodic-*-nightly"}}
      clusters:
        light: {presets: [light], when: {job: ["*-light", "*-pool"]}}
        metal: {presets: [metal], when: {api_server: "https://api.metal.*"}}
    size: 0
    rounds: 1
    profile: none
    greeting: hello
    matrix: {axes: {x: [1]}, target: local, workload: {command: ["true"]}}
    commands: {prepare: [], test: ["true"], cleanup: []}
    checks: []
    metrics: {}
"""


@pytest.fixture
def ruled(small: Workspace) -> Workspace:
    return small.write({"config/small.yaml": RULES})


def run(workspace: Workspace, *flags: str, **env: str) -> Outcome:
    outcome = workspace.run("project", "run", "small", "--phases=prepare", *flags, env=env)
    assert outcome.exit_code == 0, str(outcome)
    return outcome


def presets(workspace: Workspace) -> list[str]:
    """Return the presets of the newest run."""
    content = RunDirectory(workspace.runs()[-1]).read_request()
    return [str(preset) for preset in content["presets"]]


def test_the_name_of_the_job_selects_presets_and_the_run_says_why(ruled: Workspace) -> None:
    outcome = run(ruled, JOB_NAME="periodic-ci-e2e-nightly")
    assert presets(ruled) == ["nightly"]
    reason = "preset nightly: selected by ci.jobs.nightly: job periodic-ci-e2e-nightly"
    assert reason in " ".join(outcome.stdout.split())


@pytest.mark.parametrize("job", ["pull-ci-e2e-light", "pull-ci-e2e-pool"])
def test_the_name_of_the_job_may_select_a_cluster(ruled: Workspace, job: str) -> None:
    run(ruled, GITHUB_JOB=job)
    assert presets(ruled) == ["light"]


def test_without_a_matching_rule_nothing_is_selected(ruled: Workspace, tmp_path: Path) -> None:
    run(ruled, JOB_NAME="other", KUBECONFIG=str(tmp_path / "none"))
    assert presets(ruled) == []


def test_flags_win_over_rules_and_come_before_the_presets_of_the_caller(ruled: Workspace) -> None:
    run(ruled, "--job=nightly", "--cluster=metal", "--presets=light", JOB_NAME="x-light")
    assert presets(ruled) == ["nightly", "metal", "light"]
    assert RunDirectory(ruled.runs()[-1]).read_request()["overrides"] == {"matrix.target": "local"}


def by_host(workspace: Workspace) -> None:
    """Select the preset `metal` by the name of this machine."""
    file = workspace.directory / "config/small.yaml"
    rule = f"when: {{host: {json.dumps(socket.gethostname()[:-1] + '?')}}}"
    file.write_text(file.read_text().replace('when: {api_server: "https://api.metal.*"}', rule))


def test_the_host_selects_a_platform(ruled: Workspace) -> None:
    by_host(ruled)
    run(ruled)
    assert presets(ruled) == ["metal"]


def test_rules_that_contradict_one_another_are_an_error(ruled: Workspace) -> None:
    by_host(ruled)
    outcome = ruled.run("project", "run", "small", env={"JOB_NAME": "x-light"})
    assert outcome.exit_code == 2, str(outcome)
    assert "the rules of several clusters match: `light` (job x-light) and `metal` (host " in outcome.stderr
    assert "select one of them with --cluster=NAME" in outcome.stderr
    assert ruled.runs() == []


@pytest.mark.parametrize("flag", ["--job=nightyl", "--cluster=lihgt"])
def test_an_unknown_name_is_an_error_that_suggests_the_nearest(ruled: Workspace, flag: str) -> None:
    outcome = ruled.run("project", "run", "small", flag)
    assert outcome.exit_code == 2
    assert f"`{flag.partition('=')[2]}`: did you mean " in outcome.stderr


def test_explain_names_the_rule_that_selected_a_preset(ruled: Workspace) -> None:
    outcome = ruled.run("config", "explain", "small", "size", env={"JOB_NAME": "x-light"})
    where = f"{ruled.directory / 'config/small.yaml'}".removeprefix(f"{ruled.directory}/")
    assert outcome.stdout.splitlines()[:2] == [
        "size = 1",
        f"  preset light, selected by ci.clusters.light: job x-light ({where}:4) set it, in place of 0",
    ]
    outcome = ruled.run("config", "explain", "small", "size", "--cluster=metal", env={"JOB_NAME": "x-light"})
    assert "preset metal, selected by --cluster=metal" in outcome.stdout
    assert (
        "preset light, selected by ci.clusters.light"
        in ruled.run("config", "diff", "small", env={"JOB_NAME": "x-light"}).stdout
    )


def test_a_resumed_run_keeps_its_presets_whatever_the_rules_say_now(ruled: Workspace) -> None:
    run(ruled, JOB_NAME="x-light")
    outcome = ruled.run("project", "resume", str(ruled.run_directory()), env={"JOB_NAME": "other"})
    assert outcome.exit_code == 0, str(outcome)
    assert presets(ruled) == ["light"]


@pytest.mark.parametrize("rule", ["{}", "{jobs: x}", "{job: [1]}", "{job: ''}"])
def test_a_faulty_rule_is_reported_with_its_line(ruled: Workspace, rule: str) -> None:
    text = (ruled.directory / "config/small.yaml").read_text()
    (ruled.directory / "config/small.yaml").write_text(text.replace('{job: ["*-light", "*-pool"]}', rule))
    outcome = ruled.run("project", "run", "small")
    assert outcome.exit_code == 2
    assert "config/small.yaml:11: `ci.clusters.light.when" in outcome.stderr


def test_a_wrong_reference_in_the_rules_is_reported_like_other_faults(ruled: Workspace) -> None:
    faulty = RULES.replace("target: local, when", "target: '@missing', when")
    outcome = ruled.write({"config/small.yaml": faulty}).run("project", "run", "small")
    assert outcome.exit_code == 2
    expected = (
        "error: a fault in the configuration:\n  config/small.yaml:9: `ci.jobs.nightly.target`: dangling reference"
    )
    assert outcome.stderr.startswith(expected)
