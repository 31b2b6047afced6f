"""`project resume` with real processes, after a signal, SIGKILL, a power failure and a full disk."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.functional.grid import WORKLOAD, Grid, wait
from tests.functional.grid import grid as grid  # noqa: PLC0414  # re-exports the fixture
from tests.servers import small_disks
from toolbox.ground.system import processes
from toolbox.testing import Outcome, Workspace


def kill(grid: Grid, *cell_lines: str) -> None:
    """Run the project, and kill the orchestrator when the cells have written these lines. Running cells continue."""
    with grid.start() as running:
        grid.wait_for(*cell_lines)
        running.send(signal.SIGKILL)
        assert running.wait().exit_code == -signal.SIGKILL


def interrupt(grid: Grid, *cell_lines: str) -> None:
    """Run the project, and interrupt it when the cells have written these lines."""
    with grid.start() as running:
        grid.wait_for(*cell_lines)
        running.send(signal.SIGINT)
        assert running.wait().exit_code == 130


def finished(grid: Grid, *names: str) -> None:
    """Wait until the journal contains the ends of cells."""
    journal = grid.directory / "journal.jsonl"

    def is_there() -> bool:
        lines = journal.read_text().splitlines()
        ends = [line for line in lines if '"StepFinished"' in line]
        return all(any(f'"name": "x={name}"' in line for line in ends) for name in names)

    wait(is_there, f"the ends of {names}")


def once(*names: str) -> Counter[str]:
    """Return the lines of cells that were executed once each, with their counts."""
    return Counter(f"{word} {name}" for name in names for word in ("begin", "end"))


# After SIGKILL


def test_after_a_kill_results_are_kept_and_running_cells_adopted(grid: Grid) -> None:
    grid.configure("abcd", jobs=2).mark("hold-b", "hold-c")
    with grid.start() as running:
        grid.wait_for("end a", "begin b", "begin c")
        finished(grid, "a")
        running.send(signal.SIGKILL)
        running.wait()
    assert grid.alive(), "the running cells ended with the orchestrator"
    grid.unmark("hold-c")
    grid.wait_for("end c")  # while no orchestrator runs
    grid.unmark("hold-b")
    outcome = grid.resume()
    assert outcome.exit_code == 0, str(outcome)
    assert grid.verdicts == dict.fromkeys("abcd", "passed")
    assert Counter(grid.lines) == once(*"abcd")
    assert grid.phases == ["prepare", "cleanup"]
    assert grid.alive() == []


def test_an_adopted_cell_that_fails_fails_the_run(grid: Grid) -> None:
    grid.configure("ab").mark("hold-a", "fail-a")
    kill(grid, "begin a", "end b")
    grid.unmark("hold-a")
    assert grid.resume().exit_code == 1
    assert grid.verdicts == {"a": "failed", "b": "passed"}
    assert Counter(grid.lines) == once("a", "b")


def test_a_kill_during_prepare_repeats_prepare(grid: Grid) -> None:
    gate = grid.root / "hold-prepare"
    prepare = f'run.run("echo prepare >>phases; while [ -e {gate} ]; do sleep 0.02; done")'
    source = (grid.root / "projects/grid/orchestration.py").read_text()
    grid.workspace.write(
        {"projects/grid/orchestration.py": source.replace('run.run("echo prepare >>phases")', prepare)}
    )
    grid.mark("hold-prepare")
    with grid.start() as running:
        wait(lambda: grid.phases == ["prepare"], "the start of the phase prepare")
        running.send(signal.SIGKILL)
        running.wait()
    assert grid.alive()
    gate.unlink()
    assert grid.resume().exit_code == 0
    assert grid.phases == ["prepare", "prepare", "cleanup"]
    assert Counter(grid.lines) == once(*"abc")


def test_a_run_can_be_resumed_repeatedly(grid: Grid) -> None:
    grid.configure("abc", jobs=1).mark("hold-a", "hold-b", "hold-c")
    kill(grid, "begin a")
    for name, following in (("a", "b"), ("b", "c")):
        grid.unmark(f"hold-{name}")
        with grid.workspace.start("project", "resume", str(grid.directory)) as running:
            grid.wait_for(f"begin {following}")
            running.send(signal.SIGKILL)
            running.wait()
    grid.unmark("hold-c")
    assert grid.resume().exit_code == 0
    assert Counter(grid.lines) == once(*"abc")


def test_after_a_power_failure_running_cells_run_again(grid: Grid) -> None:
    grid.configure(retries={"backoff": {"first": 0.01}}).mark("hold-a", "hold-b", "hold-c")
    kill(grid, "begin a", "begin b", "begin c")
    for pid in grid.alive():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait(lambda: grid.alive() == [], "the end of all processes")
    grid.unmark("hold-a", "hold-b", "hold-c")
    outcome = grid.resume()
    assert outcome.exit_code == 0, str(outcome)
    assert "the cell passed at attempt 2" in outcome.stdout
    assert Counter(grid.lines) == once(*"abc") + Counter(f"begin {x}" for x in "abc")


ROLE = {
    "commands/probe.py": '''
        """Probes."""
        from toolbox.api import role


        class Probe:
            """Probes."""

            @role
            def look(self, place: str) -> None:
                """
                Look once.

                Args:
                    place: what to look at.
            """
    ''',
    "roles/probe_look/tasks/main.yml": """
        - name: Look
          ansible.builtin.shell: "echo looked >>{{ probe_look_place }}"
          changed_when: false
    """,
    "projects/grid/orchestration.py": '''
        """Looks, and runs a matrix."""
        from toolbox.orchestration import config, matrix, run


        def test():
            run.run_toolbox("probe", "look", place=f"{config.project.get_config('root')}/phases")
            matrix.run()


        def post_cleanup():
            run.run("echo cleanup >>phases")
    ''',
}


def test_passed_toolbox_commands_are_repeated_only_after_a_cleanup(grid: Grid) -> None:
    grid.workspace.write(ROLE)
    grid.configure("a").mark("hold-a")
    kill(grid, "begin a")
    with grid.workspace.start("project", "resume", str(grid.directory)) as running:
        running.wait_for("the step passed before the run was resumed")
        running.wait_for("> test")
        running.send(signal.SIGINT)
        assert running.wait().exit_code == 130
    assert grid.phases == ["looked", "cleanup"]
    grid.unmark("hold-a")
    assert grid.resume().exit_code == 0
    assert grid.phases == ["looked", "cleanup", "looked", "cleanup"]


# After a signal, and after a finished run


def test_after_an_interruption_only_unfinished_work_is_repeated(grid: Grid) -> None:
    grid.configure("abc", jobs=1).mark("hold-b")
    interrupt(grid, "end a", "begin b")
    assert grid.alive() == []
    grid.unmark("hold-b")
    outcome = grid.resume()
    assert outcome.exit_code == 0, str(outcome)
    assert grid.verdicts == dict.fromkeys("abc", "passed")
    assert Counter(grid.lines) == once(*"abc") + Counter(["begin b"])
    assert grid.phases == ["prepare", "cleanup"] * 2


def test_a_resumed_run_gets_its_whole_deadline_again(grid: Grid) -> None:
    grid.configure("ab", jobs=1, deadline=3).mark("hold-b")
    assert grid.run().exit_code == 124
    grid.unmark("hold-b")
    assert grid.resume().exit_code == 0
    assert Counter(grid.lines) == once(*"ab") + Counter(["begin b"])


def test_failed_cells_run_again_only_with_the_flag_failed(grid: Grid) -> None:
    grid.mark("fail-b").run()
    grid.unmark("fail-b")
    assert grid.resume().exit_code == 1
    assert Counter(grid.lines) == once(*"abc")
    outcome = grid.resume("--failed")
    assert outcome.exit_code == 0, str(outcome)
    assert Counter(grid.lines) == once(*"abc") + once("b")
    assert grid.verdicts == dict.fromkeys("abc", "passed")


def test_cells_cancelled_by_fail_fast_run_after_a_resume(grid: Grid) -> None:
    grid.configure("abc", jobs=1).mark("fail-a")
    assert grid.run("--fail_fast").exit_code == 1
    assert grid.resume().exit_code == 1
    assert grid.verdicts == {"a": "failed", "b": "passed", "c": "passed"}
    assert Counter(grid.lines) == once(*"abc")


@pytest.mark.parametrize(("marks", "code"), [([], 0), (["fail-b"], 1)])
def test_resuming_a_finished_run_returns_its_exit_code(grid: Grid, marks: list[str], code: int) -> None:
    grid.mark(*marks).run()
    journal = grid.directory / "journal.jsonl"
    before, cell_lines = journal.read_bytes(), grid.lines
    for _ in range(2):
        outcome = grid.resume("--format=json")
        assert outcome.exit_code == code, str(outcome)
        assert outcome.json == grid.workspace.summary()
    assert (journal.read_bytes(), grid.lines, grid.phases) == (before, cell_lines, ["prepare", "cleanup"])


def test_a_resumed_run_has_the_summary_of_an_uninterrupted_run(grid: Grid) -> None:
    grid.mark("hold-b", "fail-c")
    interrupt(grid, "end a", "begin b", "end c")
    grid.unmark("hold-b")
    grid.resume()
    resumed = grid.workspace.summary()
    assert grid.run().exit_code == 1
    whole = grid.workspace.run("project", "status", str(grid.workspace.runs()[-1]), "--format=json").json

    def verdicts(summary: dict[str, Any]) -> list[tuple[str, str]]:
        return sorted((step["name"], step["verdict"]) for step in summary["steps"])

    assert verdicts(resumed) == verdicts(whole)
    assert (resumed["verdict"], resumed["cause"], resumed["exit_code"]) == ("failed", "product", 1)


# Refused resumes


def test_a_second_orchestrator_is_refused_while_the_first_runs(grid: Grid) -> None:
    grid.configure("a").mark("hold-a")
    with grid.start() as running:
        grid.wait_for("begin a")
        outcome = grid.resume()
        assert (outcome.exit_code, outcome.stdout) == (3, ""), str(outcome)
        assert outcome.stderr == f"error: {grid.directory} is in use by another process, which is still running\n"
        grid.unmark("hold-a")
        assert running.wait().exit_code == 0
    assert Counter(grid.lines) == once("a")
    assert grid.phases == ["prepare", "cleanup"]


CHANGES: list[tuple[dict[str, Any], str]] = [
    ({"timeouts": {"run": 5}}, "$.matrix.timeouts is new"),
    ({"x": "abz"}, "matrix.axes.x[2] was 'c', is 'z'"),
    ({"jobs": 1}, "matrix.jobs was 3, is 1"),
]


def test_a_changed_configuration_is_refused_with_the_field_and_starts_nothing(grid: Grid) -> None:
    grid.mark("hold-b")
    interrupt(grid, "end a", "begin b")
    journal, before = grid.directory / "journal.jsonl", grid.lines
    content = journal.read_bytes()
    for change, message in CHANGES:
        outcome = grid.configure(**change).resume()
        assert (outcome.exit_code, outcome.stdout) == (2, ""), str(outcome)
        assert f"has changed since the run {grid.directory.name} began" in outcome.stderr
        assert message in outcome.stderr
        assert (grid.lines, journal.read_bytes()) == (before, content)
    grid.configure().unmark("hold-b")
    assert grid.resume().exit_code == 0


def test_a_run_with_changed_files_is_refused_with_their_names(grid: Grid) -> None:
    grid.workspace.write({"train.py": "one"})
    workload = {"command": WORKLOAD, "files": {"train.py": "train.py"}, "sample_seconds": None}
    grid.configure(workload=workload).mark("hold-b")
    interrupt(grid, "end a", "begin b")
    before = grid.lines
    grid.workspace.write({"train.py": "two"})
    outcome = grid.resume()
    assert (outcome.exit_code, outcome.stdout) == (2, ""), str(outcome)
    assert "train.py has changed" in outcome.stderr
    assert grid.lines == before


def test_a_run_without_a_matrix_can_be_resumed(small: Workspace) -> None:
    gate = small.directory / "gate"
    command = f"echo test >>lines; while [ ! -e {gate} ]; do sleep 0.02; done"
    changes = f'--overrides={{"commands.prepare": ["echo prepare >>lines"], "commands.test": ["{command}"]}}'
    written = small.directory / "lines"
    with small.start("project", "run", "small", changes) as running:
        wait(lambda: written.exists() and "test" in written.read_text(), "the test")
        running.send(signal.SIGKILL)
        running.wait()
    gate.touch()
    outcome = small.run("project", "resume", str(small.run_directory()))
    assert outcome.exit_code == 0, str(outcome)
    assert written.read_text().split() == ["prepare", "test", "test"]
    assert processes.marked(small.directory) == []


# A full disk


DISK_BYTES = 1 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Yield the mount point of a disk of one megabyte."""
    with small_disks.mounted(tmp_path / "disk", DISK_BYTES) as place:
        yield place


@pytest.mark.parametrize("free", [150_000, 250_000, 330_000])
def test_a_run_that_a_full_disk_ended_can_be_resumed(grid: Grid, disk: Path, free: int) -> None:
    command = "head -c 60000 /dev/zero | tr '\\0' x; echo ran {@cell.x} >>{@root}/cells"
    workload = {"command": command, "sample_seconds": None}
    grid.configure("abcd", jobs=2, workload=workload, retries={"backoff": {"first": 0.01}})
    filler = disk / "filler"
    filler.write_bytes(bytes(DISK_BYTES - free))
    outcome = grid.run(f"--artifact_dir={disk}")
    check_what_a_full_disk_left(outcome, disk)
    filler.unlink()
    (directory,) = grid.workspace.runs(disk)
    resumed = grid.workspace.run("project", "resume", str(directory), "--failed")
    assert resumed.exit_code == 0, str(resumed)
    assert {f"ran {x}" for x in "abcd"} == set(grid.lines)
    assert grid.workspace.summary(disk)["verdict"] == "passed"


def test_the_cleanup_runs_even_on_a_full_disk(small: Workspace, disk: Path) -> None:
    fill = "head -c 9000000 /dev/zero >$ARTIFACT_DIR/fill"
    changes = f'--overrides={{"commands.test": ["{fill}"], "commands.cleanup": ["touch {small.directory}/cleaned"]}}'
    small.run("project", "run", "small", changes, f"--artifact_dir={disk}")
    assert (small.directory / "cleaned").exists()


def check_what_a_full_disk_left(outcome: Outcome, disk: Path) -> None:
    """Check that a run on a full disk ends with a clear error and without processes."""
    assert outcome.exit_code == 3, str(outcome)
    assert "No space left on device" in outcome.stdout + outcome.stderr
    assert "Traceback" not in outcome.stdout + outcome.stderr
    assert processes.marked(disk) == []
