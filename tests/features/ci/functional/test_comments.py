"""`ci run` runs what a comment requests: several tests, jobs, clusters, cells, quarantine, and what failed before."""

from __future__ import annotations

import json
import re
import shlex
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from toolbox.features.ci.commands.ci import Ci
from toolbox.ground.model.errors import UsageError
from toolbox.testing import Outcome, Workspace

# A cell fails if a file named after it exists.
PROJECT = {
    "projects/cells/orchestration.py": '''
        """Runs a matrix."""
        from toolbox.orchestration import matrix

        def test():
            matrix.run()
    ''',
    "config/cells.yaml": """
        ci_presets:
          to_apply: null
          names: null
          loud: {greeting: HELLO}
          metal: {place: metal}
          light: {place: light, greeting: light}
          slow: {greeting: slow}
        ci:
          overridable: [greeting, matrix.axes, matrix.quarantine]
          jobs:
            nightly: {presets: [slow], target: second}
          clusters:
            metal: {presets: [metal]}
            light: {presets: [light]}
        greeting: hello
        place: here
        root: .
        targets: {second: {backend: local}}
        matrix:
          target: local
          axes: {x: [a, b, "c d"], y: [1, 2]}
          quarantine: []
          workload:
            command: "echo {@greeting} {@place}; [ ! -e {@root}/fail-{@cell.x}-{@cell.y} ]"
            sample_seconds: null
    """,
}
QUARANTINE = "/quarantine x=a,* it's flaky since Monday"


@pytest.fixture
def cells(workspace: Workspace) -> Workspace:
    """Return a workspace with the project `cells`, whose cells fail if a test creates certain files."""
    workspace.write(PROJECT)
    file = workspace.directory / "config/cells.yaml"
    file.write_text(file.read_text().replace("root: .", f"root: {workspace.directory}"))
    return workspace


def ci(workspace: Workspace, command: str, text: str, *flags: str) -> Outcome:
    return workspace.run("ci", command, f"--text={text}", *flags)


def configuration(run: Path) -> Any:
    return yaml.safe_load((run / "config.yaml").read_text())


def cell_names(outcome: Outcome) -> list[str]:
    return [step["name"] for step in outcome.json["steps"] if step["kind"] == "cell"]


def verdicts(outcome: Outcome) -> dict[str, str]:
    return {step["name"]: step["verdict"] for step in outcome.json["steps"] if step["kind"] == "cell"}


def test_several_tests_run_in_order_and_the_worst_exit_code_wins(small: Workspace) -> None:
    outcome = ci(
        small, "run", "/var greeting: hi\n/test small failing\n/only test\n/test small loud\n", "--format=json"
    )
    assert outcome.exit_code == 1, str(outcome)
    assert [summary["verdict"] for summary in outcome.json] == ["failed", "passed"]
    first, second = small.runs()
    assert [configuration(run)["greeting"] for run in (first, second)] == ["hi", "hi"]
    assert [step["name"] for step in outcome.json[0]["steps"]] == ["test"]
    assert [step["name"] for step in outcome.json[1]["steps"]] == ["prepare", "test", "post_cleanup"]


def test_what_was_understood_is_shown_before_anything_runs(cells: Workspace) -> None:
    outcome = ci(cells, "run", "/test cells loud\n/cells x=a,*\n/var greeting: 'it''s'\n")
    assert outcome.exit_code == 0, str(outcome)
    plan, _, rest = outcome.stdout.partition("\n\n")
    assert plan.splitlines()[:3] == [
        "/test cells loud (line 1)",
        "  presets: loud; phases: all",
        "  overrides: greeting: it's",
    ]
    assert re.search(r"cells: 2 cells to run, of 6 in the matrix; expected: .+ on targets", plan)
    assert rest.startswith("run ")


def test_nothing_runs_if_one_test_of_the_comment_is_wrong(cells: Workspace) -> None:
    outcome = ci(cells, "run", "/test cells\n/test cells\n/var matrix.axes: {x: []}\n")
    assert outcome.exit_code == 2
    assert "line 2: " in outcome.stderr
    assert not cells.artifacts.exists()


def repeated(workspace: Workspace, outcome: Outcome) -> Outcome:
    """Execute the command that repeats a run, as a person would paste it into a shell."""
    (command,) = re.findall(r"^to repeat this run: (.*)$", outcome.stdout + outcome.stderr, re.MULTILINE)
    words = shlex.split(command)
    assert words[0] == "./run_toolbox.py"
    return workspace.run(*words[1:], "--format=json")


def test_the_printed_command_repeats_the_run(cells: Workspace) -> None:
    (cells.directory / "fail-a-1").touch()
    text = "/test nightly cells loud\n/cells *y=1 'x=c_d,*'\n/cluster metal\n/var greeting: \"it's; $(touch pwned)\"\n"
    outcome = ci(cells, "run", f"{text}{QUARANTINE}\n", "--format=json", f"--artifact_dir={cells.directory}/my runs")
    assert outcome.exit_code == 0, str(outcome)
    again = repeated(cells, outcome)
    assert again.exit_code == 0, str(again)
    first, second = cells.runs(cells.directory / "my runs")
    assert verdicts(again) == verdicts(outcome)
    assert sorted(verdicts(again).values()) == ["failed", "passed", "passed", "passed"]
    assert configuration(second) == configuration(first)
    assert not list(cells.directory.rglob("*pwned*"))


def test_the_presets_of_a_job_and_a_cluster_come_before_those_of_the_comment(cells: Workspace) -> None:
    ci(cells, "run", "/test nightly cells\n/cells x=a,y=1\n/cluster light\n/test nightly cells loud\n/cells x=a,y=1\n")
    first, second = map(configuration, cells.runs())
    assert (first["greeting"], first["place"], first["matrix"]["target"]) == ("light", "light", "second")
    assert (second["greeting"], second["place"], second["matrix"]["target"]) == ("HELLO", "here", "second")
    assert first["ci_presets"]["names"] == ["slow", "light"]


def test_a_comment_may_not_set_the_target_that_a_job_may_set(cells: Workspace) -> None:
    outcome = ci(cells, "parse", "/test nightly cells\n/var matrix.target: second")
    assert (outcome.exit_code, "line 2: /var: a comment may not change `matrix.target`" in outcome.stderr) == (2, True)


def test_every_unknown_name_is_answered_with_the_nearest_one(cells: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(cells.directory)
    faults = {
        "/test nightli cells": "unknown job `nightli`: did you mean nightly?",
        "/test cels": "unknown project `cels`: did you mean cells?",
        "/test cells lout": "unknown preset `lout`: did you mean loud or slow?",
        "/test cells\n/skip tests": "line 2: /skip: unknown phase `tests`: did you mean test?",
        "/test cells\n/only tset": "line 2: /only: unknown phase `tset`: did you mean test?",
        "/test cells\n/var greting: 1": "line 2: /var: no field `greting`: the document has no `greting`; did you mean",
        "/test cells\n/cluster mettal": "line 2: unknown cluster `mettal`: did you mean metal?",
        "/test cells\n/cells x=a,y=3": "line 2: /cells `x=a,y=3`: no cell has such a name; did you mean x=a,y=",
        "/test cells\n/quarantine x=d,* why": "line 2: /quarantine `x=d,*`: no cell has such a name; ",
    }
    for text, fault in faults.items():
        with pytest.raises(UsageError) as caught:
            Ci().parse(text)
        assert fault in str(caught.value)


def test_faults_of_different_kinds_are_reported_together(cells: Workspace) -> None:
    outcome = ci(cells, "parse", "/test cells lout\n/var place: x\n/wrong\n/test cells\n/cells z\n")
    lines = outcome.stderr.splitlines()
    assert lines[0] == "error: the comment has 4 faults:"
    assert [line.split(":")[0].strip() for line in lines[1:]] == ["line 1", "line 2", "line 3", "line 5"]


def test_cells_that_a_comment_puts_into_quarantine_do_not_count_in_this_run(cells: Workspace) -> None:
    (cells.directory / "fail-a-1").touch()
    text = f"/test cells\n/only test\n{QUARANTINE}\n"
    outcome = ci(cells, "run", text, "--format=json")
    assert outcome.exit_code == 0, str(outcome)
    assert verdicts(outcome)["x=a,y=1"] == "failed"
    (failed,) = [step for step in outcome.json["steps"] if step["name"] == "x=a,y=1"]
    assert "(a comment), so the verdict does not count: it's flaky since Monday" in failed["message"]
    (cells.directory / "fail-b-1").touch()
    assert ci(cells, "run", text).exit_code == 1
    assert ci(cells, "run", "/test cells\n").exit_code == 1


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            ", matrix.quarantine]",
            "]",
            "a maintainer can allow this by `ci: {overridable: [matrix.quarantine]}` in config",
        ),
        ("  quarantine: []\n", "", "a maintainer can add `quarantine: []` to the block `matrix` of config/cells.yaml"),
    ],
)
def test_a_quarantine_needs_the_consent_of_a_maintainer(cells: Workspace, old: str, new: str, message: str) -> None:
    file = cells.directory / "config/cells.yaml"
    file.write_text(file.read_text().replace(old, new))
    outcome = ci(cells, "run", f"/test cells\n{QUARANTINE}\n")
    assert outcome.exit_code == 2
    assert message in outcome.stderr
    assert len(outcome.stderr.splitlines()) == 1


def test_a_quarantine_keeps_the_entries_of_the_configuration(cells: Workspace) -> None:
    file = cells.directory / "config/cells.yaml"
    entry = '{when: {x: b}, reason: "@place", owner: ada, expires: 2999-01-31}'
    file.write_text(file.read_text().replace("quarantine: []", f"quarantine: [{entry}]"))
    for name in ("fail-a-1", "fail-b-1"):
        (cells.directory / name).touch()
    outcome = ci(cells, "run", f"/test cells\n{QUARANTINE}\n")
    assert outcome.exit_code == 0, str(outcome)


def test_a_retest_repeats_the_cells_that_did_not_pass_with_the_same_overrides(cells: Workspace) -> None:
    for name in ("fail-a-1", "fail-b-2"):
        (cells.directory / name).touch()
    first = ci(cells, "run", "/test nightly cells loud\n/var greeting: hi\n", "--format=json")
    assert first.exit_code == 1
    (cells.directory / "fail-a-1").unlink()
    second = ci(cells, "run", "/retest cells", "--format=json")
    assert (second.exit_code, verdicts(second)) == (1, {"x=a,y=1": "passed", "x=b,y=2": "failed"}), str(second)
    (cells.directory / "fail-b-2").unlink()
    third = ci(cells, "run", "/retest", "--format=json")
    assert (third.exit_code, verdicts(third)) == (0, {"x=b,y=2": "passed"}), str(third)
    configurations = [configuration(run) for run in cells.runs()]
    assert configurations[0] == configurations[1] == configurations[2]
    last = ci(cells, "run", "/retest")
    assert last.exit_code == 2
    assert "there is nothing to repeat: /test cells runs everything again" in last.stderr


def test_a_retest_repeats_a_run_without_a_matrix(small: Workspace) -> None:
    assert ci(small, "run", "/test small failing\n/skip prepare").exit_code == 1
    again = ci(small, "run", "/retest", "--format=json")
    assert again.exit_code == 1
    assert [step["name"] for step in again.json["steps"]] == ["test", "post_cleanup"]


def test_a_retest_of_a_run_by_hand_changes_only_overridable_fields(cells: Workspace) -> None:
    (cells.directory / "fail-a-1").touch()
    cells.write({"more.yaml": "place: elsewhere"})
    assert cells.run("project", "run", "cells", "--overrides=more.yaml").exit_code == 1
    outcome = ci(cells, "run", "/retest")
    assert outcome.exit_code == 2
    assert "line 1: a comment may not change `place`" in outcome.stderr
    assert ci(cells, "run", "/retest", "--overrides=more.yaml").exit_code == 1


def test_a_retest_without_an_earlier_run_is_refused(small: Workspace) -> None:
    outcome = ci(small, "run", "/retest small")
    assert outcome.exit_code == 2
    assert "has no run of small to repeat: /test small starts one" in outcome.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("/cancel\n/test small", "/cancel works only on a forge"),
        ("thanks", "the comment does not request a run"),
        ("/test cells", "the comment requests the project `cells`, but only small is allowed here"),
    ],
)
def test_what_cannot_run_here_is_refused(small: Workspace, text: str, message: str) -> None:
    small.write(PROJECT)
    outcome = ci(small, "run", text, "--project=small")
    assert (outcome.exit_code, message in outcome.stderr) == (2, True), str(outcome)


def test_the_deadline_is_for_all_runs_together(small: Workspace) -> None:
    small.write({"config/small.local.yaml": json.dumps({"commands.test": ["sleep 60"]})})
    outcome = ci(small, "run", "/test small\n/test small loud\n", "--deadline=2")
    assert outcome.exit_code == 124, str(outcome)
    assert "/test small loud was not started: the deadline has passed" in outcome.stderr
    assert len(small.runs()) == 1


def test_a_signal_ends_all_runs_of_a_comment(small: Workspace) -> None:
    small.write({"config/small.local.yaml": json.dumps({"commands.test": ["sleep 60"]})})
    with small.start("ci", "run", "--text=/test small\n/test small loud\n") as running:
        running.wait_for("$ sleep 60")
        running.send(signal.SIGINT)
        outcome = running.wait()
    assert outcome.exit_code == 130, str(outcome)
    assert "/test small loud was not started: the run before it was interrupted" in outcome.stderr
    assert len(small.runs()) == 1


def test_a_run_that_exceeds_its_own_deadline_does_not_stop_the_next_one(cells: Workspace) -> None:
    file = cells.directory / "config/cells.yaml"
    text = file.read_text().replace(
        "slow: {greeting", "slow: {matrix.deadline: 1, matrix.workload.command: sleep 60, greeting"
    )
    file.write_text(text.replace("  target: local\n", "  target: local\n  deadline: null\n"))
    outcome = ci(cells, "run", "/test cells slow\n/cells x=a,y=1\n/test cells\n/cells x=a,y=1\n", "--format=json")
    assert outcome.exit_code == 124, str(outcome)
    assert [summary["verdict"] for summary in outcome.json] == ["cancelled", "passed"]


def test_a_quarantine_of_too_many_cells_is_refused(cells: Workspace) -> None:
    axes = f"matrix.axes: {{x: {list(range(201))}}}"
    outcome = ci(cells, "parse", f"/test cells\n/var {axes}\n/quarantine * they are many\n")
    assert outcome.exit_code == 2
    assert "line 3: /quarantine: 201 cells match, but at most 200 are allowed" in outcome.stderr


def test_a_run_that_a_comment_requested_is_resumed_with_its_job_and_its_quarantine(cells: Workspace) -> None:
    for name in ("fail-a-1", "fail-b-1"):
        (cells.directory / name).touch()
    text = f"/test nightly cells\n/cells *y=1\n/var greeting: hi\n{QUARANTINE}\n"
    assert ci(cells, "run", text).exit_code == 1
    (cells.directory / "fail-b-1").unlink()
    outcome = cells.run("project", "resume", str(cells.run_directory()), "--failed", "--format=json")
    assert outcome.exit_code == 0, str(outcome)
    assert verdicts(outcome) == {"x=a,y=1": "failed", "x=b,y=1": "passed", "x=c_d,y=1": "passed"}
