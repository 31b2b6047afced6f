"""`project list|run|status`: phases, verdicts with their causes, exit codes, and the files of a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from toolbox.cli.commands import project
from toolbox.ground.system import places
from toolbox.testing import Outcome, Workspace

LATENCY = {
    "commands.test": ["echo '{\"latency\": [12.5]}' >$ARTIFACT_DIR/m.json"],
    "metrics": {"latency": {"source": "json_file", "file": "m.json", "path": "latency[0]", "unit": "ms"}},
}


def run(workspace: Workspace, changes: dict[str, Any] | None = None, *flags: str) -> Outcome:
    """Run the project `small` with changes to its configuration."""
    return workspace.run("project", "run", "small", f"--overrides={json.dumps(changes or {})}", *flags)


def steps(workspace: Workspace) -> dict[str, str]:
    """Return the verdicts of the steps of the only run."""
    return {step["step"]: step["verdict"] for step in workspace.summary()["steps"]}


ENDINGS = {
    "passed": ({}, 0, "passed", None),
    "command of the test fails": ({"commands.test": ["exit 7"]}, 1, "failed", "product"),
    "command of the preparation fails": ({"commands.prepare": ["exit 7"]}, 3, "error", "infrastructure"),
    "command of the cleanup fails": ({"commands.cleanup": ["touch $ARTIFACT_DIR/cleaned; false"]}, 3, "error", None),
    "program that is not there": ({"commands.test": [["no-such-program"]]}, 3, "error", "configuration"),
    "a later program of a pipe fails": ({"commands.test": ["false | cat"]}, 1, "failed", "product"),
    "a variable that is not set": ({"commands.test": ["echo $NO_SUCH_VARIABLE"]}, 1, "failed", "product"),
    "mistake in the orchestration": ({"commands.test": 5}, 3, "error", "internal"),
    "field that is not there": (
        {"commands": {"prepare": [], "cleanup": ["touch $ARTIFACT_DIR/cleaned"]}},
        3,
        "error",
        "configuration",
    ),
    "metric within bounds": (
        {**LATENCY, "checks": [{"check": "metric", "metric": "latency", "upper": 12.5}]},
        0,
        "passed",
        None,
    ),
    "metric that is not there": (
        {**LATENCY, "commands.test": [], "checks": [{"check": "metric", "metric": "latency", "upper": 10}]},
        1,
        "failed",
        "check",
    ),
    "check that does not exist": ({"checks": [{"check": "metrc"}]}, 3, "error", "configuration"),
    "metric out of bounds": (
        {**LATENCY, "checks": [{"check": "metric", "metric": "latency", "upper": 10}]},
        1,
        "failed",
        "check",
    ),
}


@pytest.mark.parametrize(("changes", "code", "verdict", "cause"), ENDINGS.values(), ids=ENDINGS)
def test_a_run_ends_in_a_verdict_a_cause_and_an_exit_code_after_its_cleanup(
    small: Workspace, changes: dict[str, Any], code: int, verdict: str, cause: str | None
) -> None:
    outcome = run(small, changes)
    assert outcome.exit_code == code, str(outcome)
    summary = small.summary()
    assert (summary["state"], summary["exit_code"], summary["verdict"]) == ("finished", code, verdict)
    assert summary["cause"] == (cause or (None if verdict == "passed" else "infrastructure"))
    assert list(small.run_directory().glob("*__post_cleanup/cleaned"))


def test_a_check_that_fails_names_metric_value_and_bound(small: Workspace) -> None:
    outcome = run(small, {**LATENCY, "checks": [{"check": "metric", "metric": "latency", "upper": 10}]})
    message = "latency is 12.5 ms, above its upper bound 10 ms"
    assert message in outcome.stdout
    assert message in small.summary()["message"]
    assert message in (small.run_directory() / "001__test/FAILURE").read_text()
    checks = json.loads((small.run_directory() / "001__test/checks.json").read_text())
    where = {"file": "", "line": None, "out_of_range": True}
    assert checks["checks"] == [{"check": "metric", "passed": False, "message": message, **where}]


def test_the_terminal_shows_failures_causes_and_directories(small: Workspace) -> None:
    outcome = run(small, {"commands.test": ["echo before >&2; exit 7"]})
    assert "`echo before >&2; exit 7` ended with status 7" in outcome.stdout
    assert f"look at {small.run_directory()}/001__test" in outcome.stdout
    assert outcome.stdout.rstrip().endswith(f"the run is in {small.run_directory()}")
    assert "\x1b" not in outcome.stdout, "there is colour in a pipe"


@pytest.mark.parametrize(
    ("phase", "code", "verdict", "phases"),
    [
        ("prepare", 3, "error", ["000__prepare", "001__post_cleanup"]),
        ("test", 1, "failed", ["000__prepare", "001__test", "002__post_cleanup"]),
    ],
)
def test_the_first_failure_is_reported_before_that_of_the_cleanup(
    small: Workspace, phase: str, code: int, verdict: str, phases: list[str]
) -> None:
    outcome = run(small, {f"commands.{phase}": ["exit 7"], "commands.cleanup": ["exit 8"]})
    assert (outcome.exit_code, small.summary()["verdict"]) == (code, verdict)
    first, second = small.summary()["message"].splitlines()
    assert "status 7" in first
    assert second.startswith("and then: ")
    assert "status 8" in second
    assert list(steps(small)) == phases


def test_a_project_without_phases_is_skipped(small: Workspace) -> None:
    small.write({"projects/small/orchestration.py": '"""Nothing to do."""\n'})
    assert run(small).exit_code == 4
    assert small.summary()["verdict"] == "skipped"


def test_selected_phases_run_in_their_usual_order(small: Workspace) -> None:
    assert run(small, {}, "--phases=post_cleanup,prepare").exit_code == 0
    assert list(steps(small)) == ["000__prepare", "001__post_cleanup"]


def test_a_run_saves_its_request_and_its_result(small: Workspace) -> None:
    run(small, {"tag": "1.20"}, "--presets=loud")
    directory = small.run_directory()
    request = json.loads((directory / "run.json").read_text())
    assert (request["project"], request["presets"], request["overrides"]) == ("small", ["loud"], {"tag": "1.20"})
    configuration = yaml.safe_load((directory / "config.yaml").read_text())
    assert (configuration["greeting"], configuration["tag"]) == ("HELLO", "1.20")
    applied = (directory / "presets_applied").read_text().splitlines()
    assert applied[0].startswith("preset loud: greeting --> 'HELLO'")
    assert applied[1] == "--overrides: tag --> '1.20'"
    events = [json.loads(line)["event"] for line in (directory / "journal.jsonl").read_text().splitlines()]
    assert (events[0], events[-1], events.count("StepFinished")) == ("RunStarted", "RunFinished", 3)


def test_the_files_of_a_run_are_private(small: Workspace) -> None:
    run(small, {"commands.cleanup": []})
    directory = small.run_directory()
    assert [path for path in [directory, *directory.rglob("*")] if path.stat().st_mode & 0o077] == []


def test_the_configuration_of_a_run_can_be_run_again(small: Workspace) -> None:
    run(small, {"greeting": "a: b"}, "--presets=failing")
    again = small.run("config", "show", f"--config_file={small.run_directory()}/config.yaml", "--format=json").json
    flags = ("--presets=failing", "--overrides={greeting: 'a: b'}", "--format=json")
    assert again == small.run("config", "show", "small", *flags).json


@pytest.mark.parametrize("way", ["flag", "environment"])
def test_the_directory_for_runs_can_be_chosen(small: Workspace, tmp_path: Path, way: str) -> None:
    place = tmp_path / "elsewhere"
    flags = [f"--artifact_dir={place}"] if way == "flag" else []
    env = {"ARTIFACT_DIR": str(place)} if way == "environment" else {}
    assert small.run("project", "run", "small", *flags, env=env).exit_code == 0
    assert small.summary(place)["verdict"] == "passed"
    assert small.runs() == []


def test_two_runs_at_the_same_time_share_nothing(small: Workspace) -> None:
    with small.start("project", "run", "small") as one, small.start("project", "run", "small") as other:
        assert (one.wait().exit_code, other.wait().exit_code) == (0, 0)
    assert len(small.runs()) == 2


def test_with_json_stdout_contains_only_the_summary(small: Workspace) -> None:
    outcome = run(small, {"commands.test": ["echo noise"]}, "--format=json")
    assert outcome.json == small.summary()
    assert "noise" in outcome.stderr


def test_status_shows_the_result_of_a_run(small: Workspace) -> None:
    run(small, {"commands.test": ["exit 7"]})
    text = small.run("project", "status", str(small.run_directory()))
    assert text.exit_code == 0
    assert "failed (product)  small in" in text.stdout
    assert "`exit 7` ended with status 7" in text.stdout
    with (small.run_directory() / "journal.jsonl").open("a") as journal:
        journal.write('{"time": "2026-')  # a power cut may leave an incomplete last line
    assert small.run("project", "status", str(small.run_directory()), "--format=json").json == small.summary()


def test_projects_are_listed_with_their_purposes(small: Workspace) -> None:
    assert "small         Runs the commands that its configuration holds.\n" in small.run("project", "list").stdout
    listed = small.run("project", "list", "--format=json").json
    names = [item["name"] for item in listed]
    assert names == sorted({*names, "small", "training_e2e"})


def test_a_team_may_have_commands_and_no_projects(workspace: Workspace) -> None:
    (workspace.directory / "projects").rmdir()
    workspace.write({"commands/a.py": "class A:\n    def say(self) -> str:\n        'Say so.'\n        return 'so'\n"})
    assert workspace.run("a", "say").stdout == "so\n"


@pytest.mark.parametrize("flags", [[], ["--format=json"]], ids=["text", "json"])
@pytest.mark.parametrize(
    ("command", "code", "verdict"), [("echo noise", 0, "passed"), ("echo noise; exit 7", 1, "failed")]
)
def test_a_broken_pipe_does_not_change_the_run(
    small: Workspace, command: str, code: int, verdict: str, flags: list[str]
) -> None:
    argv = ["project", "run", "small", f"--overrides={json.dumps({'commands.test': [command]})}", *flags]
    outcome = without_a_reader(small, *argv)
    assert outcome.returncode == code, outcome.stderr
    assert (small.summary()["verdict"], small.summary()["exit_code"]) == (verdict, code)
    assert list(steps(small)) == ["000__prepare", "001__test", "002__post_cleanup"]
    assert list(small.run_directory().glob("*__post_cleanup/cleaned"))
    assert "Traceback" not in outcome.stderr
    assert "BrokenPipe" not in outcome.stderr


def without_a_reader(workspace: Workspace, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run a command line whose standard output is a pipe that its reader has closed."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return subprocess.run(
            [sys.executable, str(places.builtin_root() / "run_toolbox.py"), *argv],
            cwd=workspace.directory,
            env={"PATH": os.environ["PATH"], "HOME": str(workspace.home), "TOPGALLANT_NO_VENV": "1"},
            stdin=subprocess.DEVNULL,
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )
    finally:
        os.close(writer)


def test_an_artifact_dir_that_is_a_file_is_refused(small: Workspace) -> None:
    small.write({"taken": "x"})
    outcome = small.run("project", "run", "small", "--artifact_dir=taken")
    assert (outcome.exit_code, outcome.stdout) == (2, ""), str(outcome)
    assert outcome.stderr.startswith("error: the artifact directory taken/small cannot be created")
    assert "--artifact_dir" in outcome.stderr
    assert (small.directory / "taken").read_text() == "x"


def test_a_run_passes_even_if_its_reports_cannot_be_written(small: Workspace) -> None:
    reports = {
        "summary.json": "summary.json",
        "junit.xml": "the report `junit`",
        "report.html": "the report `run_page`",
    }
    obstacles = " ".join(f"$ARTIFACT_DIR/../{name}" for name in reports)  # no file can take the place of a directory
    outcome = small.run("project", "run", "small", f'--overrides={{"commands.cleanup": ["mkdir {obstacles}"]}}')
    assert outcome.exit_code == 0, str(outcome)
    assert "passed  small in" in outcome.stdout
    for name in reports.values():
        assert f"warning: {name} of this run could not be written: IsADirectoryError" in outcome.stderr


def test_the_name_of_a_run_does_not_depend_on_how_its_path_is_written(tmp_path: Path) -> None:
    (tmp_path / "run/step").mkdir(parents=True)
    assert project._run_directory(f"{tmp_path}/run/step/..").name == "run"


def test_a_checkout_of_another_owner_is_named_with_the_advice_of_git(small: Workspace) -> None:
    subprocess.run(["git", "init", "--quiet", small.directory], check=True)
    usual = small.run("project", "run", "small")
    outcome = small.run("project", "run", "small", env={"GIT_TEST_ASSUME_DIFFERENT_OWNER": "1", "LANG": "de"})
    assert (usual.exit_code, outcome.exit_code) == (0, 0), str(outcome)
    assert "the revision of the project is unknown" not in usual.stderr  # a repository without a commit
    assert "warning: the revision of the project is unknown, because git cannot read" in outcome.stderr
    assert f"git config --global --add safe.directory {small.directory}" in outcome.stderr
