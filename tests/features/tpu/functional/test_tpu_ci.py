"""The project `tpu_ci` tests a real repository: its test cases are rows of the cells, at the resolved commit."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from toolbox.ground.system import places
from toolbox.testing import Outcome, Workspace

JUNIT = """<testsuite><testcase classname="m" name="good" time="0.5"/>
<testcase classname="m" name="bad" time="0.25"><failure message="1 != 2">at m.bad</failure></testcase>
</testsuite>"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with a finished JUnit file, which its suites copy."""
    directory = tmp_path / "repository"
    directory.mkdir()
    (directory / "junit.xml").write_text(JUNIT)
    commit(directory)
    return directory


def commit(directory: Path) -> None:
    """Make a directory a repository with one commit."""
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.invalid"]
    for arguments in (["init", "-q", "-b", "main"], ["add", "-A"], [*identity, "commit", "-q", "-m", "x"]):
        subprocess.run(["git", "-C", str(directory), *arguments], check=True)


def run(workspace: Workspace, repository: Path, *commands: str, **overrides: Any) -> Outcome:
    """Run the project on a repository, with one suite of these commands."""
    changes = {
        "repository.url": str(repository),
        "host.capture_state.enabled": False,
        "matrix.axes.suite": {"only": {"commands": list(commands), "min_tests": 1}},
        **overrides,
    }
    return workspace.run("project", "run", "tpu_ci", f"--overrides={json.dumps(changes)}")


def test_a_failed_test_case_fails_its_cell_at_the_resolved_commit(workspace: Workspace, repository: Path) -> None:
    outcome = run(workspace, repository, 'cp junit.xml "$RESULTS"', **{"repository.revision": "main"})
    assert outcome.exit_code == 1, str(outcome)
    assert "1 of 2 tests did not pass (1 passed, 1 failed)" in outcome.stdout
    head = subprocess.run(
        ["git", "-C", str(repository), "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    )
    request = json.loads((workspace.run_directory() / "run.json").read_text())
    assert request["revision"] == head.stdout.strip()
    shown = workspace.run("results", "show", "--project=tpu_ci", "--tests", "--format=json")
    assert [(row["test"], row["outcome"], row["text"]) for row in json.loads(shown.stdout)] == [
        ("m.bad", "failed", "at m.bad"),
        ("m.good", "passed", ""),
    ]


def test_the_static_checks_of_this_repository_pass_on_a_new_checkout(workspace: Workspace, tmp_path: Path) -> None:
    root, checkout = places.builtin_root(), tmp_path / "checkout"
    for name in ("toolbox", "projects", "tests", "benchmarks"):
        shutil.copytree(root / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__", "*_pb2.*"))
    for name in ("pyproject.toml", "hatch_build.py", "run_toolbox.py", ".gitignore"):
        shutil.copy(root / name, checkout)
    commit(checkout)
    document = yaml.safe_load((root / "config/tpu_ci.yaml").read_text())
    commands: list[str] = document["ci_presets"]["cpu"]["matrix.axes.suite"]["static"]["commands"]
    # mypy takes half a minute for everything, so it checks only a module that needs generated code.
    few = [text.replace("mypy ", "mypy toolbox/features/inference/client/fmaas_messages.py ") for text in commands]
    outcome = run(workspace, checkout, **{"matrix.axes.suite": {"static": {"commands": few, "min_tests": 2}}})
    assert outcome.exit_code == 0, str(outcome)


@pytest.mark.parametrize(
    "command", ["echo OK", 'cp junit.xml "$RESULTS" && sed -i /bad/d "$RESULTS/junit.xml"; exit 1']
)
def test_a_cell_without_results_or_with_a_failed_command_does_not_pass(
    workspace: Workspace, repository: Path, command: str
) -> None:
    outcome = run(workspace, repository, command)
    assert outcome.exit_code == 1, str(outcome)
    assert "is not XML" not in outcome.stdout


def test_a_suite_without_failures_passes(workspace: Workspace, repository: Path) -> None:
    outcome = run(workspace, repository, 'sed /bad/d junit.xml >"$RESULTS/junit.xml"')
    assert outcome.exit_code == 0, str(outcome)
    (cell,) = [step for step in workspace.summary()["steps"] if step["kind"] == "cell"]
    assert (cell["cases"][0]["passed"], cell["metrics"][0]["value"]) == (1, 0.5)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"repository.revision": "nope"}, "has no revision nope"),
        ({"repository.revision": "--all"}, "must be a commit, a branch, a tag"),
        ({"repository.url": "ext::sh -c id"}, "must not contain spaces"),
        ({"repository.url": "https://a:b@c.invalid/d"}, "must not contain a user or a password"),
    ],
)
def test_a_wrong_repository_or_revision_starts_nothing(
    workspace: Workspace, repository: Path, overrides: dict[str, str], message: str
) -> None:
    outcome = run(workspace, repository, "true", **overrides)
    assert (outcome.exit_code, message in outcome.stderr) == (2, True), str(outcome)
    assert not (workspace.directory / "artifacts").exists()
