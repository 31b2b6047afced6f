"""A run whose power is cut at any write can be resumed, and ends with the same verdicts as without the power cut.

A run of three cells and its agent are recorded, system call by system call. The test restores each state in which a
power cut may have left the disk, and resumes the run from it: no recorded result is lost or computed again, and no
verdict changes. To resume all states takes minutes, so a fixed sample is resumed by default, and all states only with
TOPGALLANT_TEST_ALL_POWER_CUTS=1.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.fakes import disk, disk_recorder
from tests.fakes.disk import State
from tests.functional.grid import ORCHESTRATION
from toolbox.ground.model.errors import UsageError
from toolbox.ground.model.events import AttemptEnded, RunStarted, StepFinished
from toolbox.ground.model.verdicts import Verdict
from toolbox.ground.system import processes
from toolbox.ground.system.redaction import Redactor
from toolbox.orchestration import project_run
from toolbox.orchestration.request import RunRequest
from toolbox.records.runs import journal, run_reader
from toolbox.targets import bootstrap
from toolbox.testing import Workspace

PARTS: Final = 4  # into which the states are divided; the recorded calls are the same in every process
SAMPLED: Final = 0.2  # part of the states
CELLS: Final = "abc"
MOST: Final = {"a": 1, "b": 2, "c": 2}  # attempts of each cell
EXPECTED: Final = {"x=a": Verdict.PASSED, "x=b": Verdict.FAILED, "x=c": Verdict.FAILED}
# A metric reads the files of a and c, and b fails for a line of its log: if one of them is lost, a verdict changes.
COMMAND: Final = """
    echo begin {@cell.x} >>{@root}/world
    case {@cell.x} in b) echo 'ERROR: it went wrong';; esac
    case {@cell.x} in c) echo '{"loss": 9}' >loss.json;; *) echo '{"loss": 1}' >loss.json;; esac
    echo end {@cell.x} >>{@root}/world
"""
# b has no such check, so that its verdict depends on its log alone.
LOSSES: Final = [{"check": "metric", "metric": "loss", "upper": 2, "when": {"x": x}} for x in "ac"]
MATRIX: Final = {
    "axes": {"x": list(CELLS)},
    "jobs": 1,
    "workload": {"command": COMMAND, "sample_seconds": None},
    "metrics": {"loss": {"source": "json_file", "file": "files/loss.json", "path": "loss"}},
    "checks": [{"check": "log_lacks", "text": "ERROR"}, *LOSSES],
    # Failed cells are tried once more, so that some power cuts fall between two attempts of a cell.
    "retries": {"check": 1, "backoff": {"first": 0.01}},
}


class Team:
    """A workspace in which one run is recorded, and then resumed from every state."""

    def __init__(self, workspace: Workspace) -> None:
        self.root = workspace.directory
        self.world = self.root / "world"
        self.artifacts = self.root / "artifacts"
        configuration = {"root": str(self.root), "results": {"record": False}, "matrix": MATRIX}
        workspace.write(
            {
                "projects/grid/orchestration.py": ORCHESTRATION.replace(">>phases", f">>{self.world}"),
                "command_args/grid.yaml.j2": "",
                "config/grid.yaml": json.dumps(configuration),
            }
        )

    def recorded(self, monkeypatch: pytest.MonkeyPatch) -> list[State]:
        """Run the project, and return the distinct states in which a power cut may leave its disk, in order."""
        log = self.root / "recorded"
        self.artifacts.mkdir()
        places = (str(self.artifacts), str(log), str(self.world))
        recorder = Path(disk_recorder.__file__).read_text(encoding="utf-8").replace("from __future__", "# ")
        with monkeypatch.context() as patched:
            agent = bootstrap.program()[8:].decode()
            text = f"{recorder}\ninstall(*{places!r})\n{agent}".encode()
            patched.setattr(bootstrap, "program", lambda: f"{len(text):08d}".encode() + text)
            remove = disk_recorder.install(*places)
            try:
                _, code = project_run.execute(RunRequest("grid", artifact_dir=self.artifacts), [], Redactor())
            finally:
                remove()
        assert code == 1
        (directory,) = self.artifacts.glob("grid/*")
        assert verdicts(directory) == EXPECTED, [step.message for step in run_reader.read(directory).cells]
        distinct: dict[object, State] = {}
        for state in disk.states(log):
            distinct.setdefault(state.key, state)
        return list(distinct.values())

    def outcome(self, state: State) -> str:
        """Resume the run from a state, and return `resumed`, `not begun`, or a description of the failure."""
        try:
            return self._resume(state)
        except Exception as error:  # noqa: BLE001  # the other states are tested nevertheless
            return f"{state.kind}, after {state.call}: {type(error).__name__}: {error}"

    def _resume(self, state: State) -> str:
        shutil.rmtree(self.artifacts)
        self.artifacts.mkdir()
        state.write(self.artifacts)
        self.world.write_bytes(state.outside)
        for name in [name for name in sys.modules if name.startswith("projects.grid")]:
            del sys.modules[name]
        directories = list(self.artifacts.glob("grid/*"))
        if not directories or not any(isinstance(entry.event, RunStarted) for entry in journal.read(directories[0])):
            assert not state.outside, "a workload was started, but the disk has no record of the run"
            for directory in directories:
                with pytest.raises(UsageError, match="is not the directory of a run"):
                    project_run.resume(directory, [], Redactor())
            return "not begun"
        (directory,) = directories
        done = finished(directory)
        found, code = project_run.resume(directory, [], Redactor())
        assert (code, verdicts(directory), found.damage) == (1, EXPECTED, ())
        executed = Counter(re.findall(r"begin (\w)", self.world.read_text()))
        before = Counter(re.findall(r"begin (\w)", state.outside.decode()))
        again = {cell: count - before[cell] for cell, count in executed.items()}
        assert all(again.get(cell, 0) <= max(0, most - done[cell]) for cell, most in MOST.items()), (
            f"{done} had ended, and {again} were executed again"
        )
        return "resumed"


def verdicts(directory: Path) -> dict[str, Verdict | None]:
    """Return the verdicts of the cells of a run, by name."""
    return {step.name: step.verdict for step in run_reader.read(directory).cells}


def finished(directory: Path) -> Counter[str]:
    """Return how many attempts of each cell have ended according to the disk, and need not be executed again."""
    events = [entry.event for entry in journal.read(directory)]
    ended = {(event.step, event.attempt) for event in events if isinstance(event, AttemptEnded)}
    ended |= {
        (str(file.parent.parent.relative_to(directory)), int(file.parent.name.removeprefix("attempt-")))
        for file in directory.glob("*/*/attempt-*/exit_code")
    }
    count = Counter(step.rpartition("=")[2] for step, _ in ended)
    closed = [event.name for event in events if isinstance(event, StepFinished) and event.name in EXPECTED]
    return count + Counter({name[2:]: 9 for name in closed})


@pytest.fixture
def team(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Iterator[Team]:
    """Yield the workspace as the working directory, and kill its processes after the test."""
    found = Team(workspace)
    monkeypatch.chdir(found.root)
    yield found
    processes.end_marked(found.root)


@pytest.mark.parametrize("part", range(PARTS))
def test_a_run_can_be_resumed_after_a_power_cut_at_any_write(
    team: Team, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = team.recorded(monkeypatch)
    if "TOPGALLANT_TEST_ALL_POWER_CUTS" not in os.environ:
        states = random.Random(0).sample(states, round(SAMPLED * len(states)))
    outcomes = Counter(team.outcome(state) for state in states[part::PARTS])
    assert outcomes["resumed"]
    assert outcomes.keys() <= {"resumed", "not begun"}
