"""If a resumed run ends before it has adopted its open attempts, their workloads are ended."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.backend import NEVER, FakeBackend, Machines
from tests.fakes.bench import Bench
from tests.fakes.history import folded
from tests.fakes.ledger import MemoryLedger
from tests.unit.matrix.conftest import Planned
from toolbox.ground.extensions.protocols import Backend
from toolbox.ground.model.errors import InfrastructureError, StepError
from toolbox.ground.model.events import AttemptAbandoned, AttemptSubmitted, StepStarted
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.ground.model.workloads import Handle, TargetContext, Workload
from toolbox.ground.system.redaction import Redactor
from toolbox.matrix import unattended_attempts
from toolbox.matrix.targets import PlannedTarget
from toolbox.records.runs.recorder import Recorder


class Left:
    """A run that was killed while all of its attempts were running."""

    def __init__(self, bench: Bench, planned: Planned, xs: str) -> None:
        bench.run(xs, Machines())
        names = {event.step[-1]: event.name for event in bench.of(AttemptSubmitted)}
        self.machines = Machines(dict.fromkeys(xs, NEVER))
        context = TargetContext("one", bench.root.name, bench.root, {}, tuple, lambda _: None, MemoryLedger())
        for x, name in names.items():
            self.machines.submit(x, name, context)
        self._plan = planned({"axes": {"x": list(xs)}}, self.machines.target("one"), self.machines.target("two"))
        self._events = [event for event in bench.events if isinstance(event, StepStarted | AttemptSubmitted)]
        self._abandoned: list[AttemptAbandoned] = []
        self._root = bench.root

    def move(self, x: str, target: str) -> None:
        """Change the recorded target of a cell's attempt."""
        self._events = [
            replace(event, target=target) if isinstance(event, AttemptSubmitted) and event.step[-1] == x else event
            for event in self._events
        ]

    def abandon(self) -> None:
        """Give up all attempts."""
        submitted = [event for event in self._events if isinstance(event, AttemptSubmitted)]
        self._abandoned = [AttemptAbandoned(event.step, event.attempt) for event in submitted]

    def end(self) -> list[str]:
        """End the open attempts, and return the cells whose attempts have ended."""
        unattended_attempts.end(
            self._plan, Recorder(self._root, Redactor(), past=folded([*self._events, *self._abandoned])), {}
        )
        return [entry.removeprefix("end ") for entry in self.machines.log if entry.startswith("end ")]


def refuse(monkeypatch: pytest.MonkeyPatch, *xs: str) -> list[str]:
    """Make the target refuse requests about these attempts, and return a list that collects all requests."""
    find, requested = FakeBackend.find, []

    def refusing(self: FakeBackend, workload: Workload, name: str, directory: Path) -> Handle | None:
        word = self.machines._attempts[name].word
        requested.append(word)
        if word in xs:
            raise StepError("jobs is forbidden", verdict=Verdict.ERROR, cause=Cause.CONFIGURATION)
        return find(self, workload, name, directory)

    monkeypatch.setattr(FakeBackend, "find", refusing)
    return requested


def test_all_open_attempts_are_ended(bench: Bench, planned: Planned) -> None:
    assert Left(bench, planned, "abc").end() == ["a", "b", "c"]


def test_an_attempt_that_cannot_be_found_does_not_stop_the_others(
    bench: Bench, planned: Planned, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    left = Left(bench, planned, "abc")
    refuse(monkeypatch, "b")
    assert left.end() == ["a", "c"]
    (record,) = caplog.records
    assert record.message.endswith(" may still be running: jobs is forbidden")


def test_a_target_that_cannot_be_opened_does_not_stop_the_others(
    bench: Bench, planned: Planned, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    left = Left(bench, planned, "ab")
    left.move("a", "two")
    opened = PlannedTarget.open

    def refusing(self: PlannedTarget, *args: Any, **options: Any) -> Backend:
        if self.name == "two":
            raise InfrastructureError("its cluster does not answer")
        return opened(self, *args, **options)

    monkeypatch.setattr(PlannedTarget, "open", refusing)
    assert left.end() == ["b"]
    assert caplog.messages == ["workloads on two may still be running: its cluster does not answer"]


def test_remains_on_a_target_that_cannot_be_opened_are_reported(
    bench: Bench, planned: Planned, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    left = Left(bench, planned, "a")
    left.abandon()

    def refusing(*_: Any, **__: Any) -> Backend:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(PlannedTarget, "open", refusing)
    assert left.end() == []
    assert caplog.messages == ["files of the run may remain on one: OSError: [Errno 28] No space left on device"]


def test_a_target_that_does_not_answer_gets_one_request(
    bench: Bench, planned: Planned, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    left = Left(bench, planned, "abc")
    monkeypatch.setattr(unattended_attempts, "_LONGEST_SECONDS", -1.0)
    requested = refuse(monkeypatch, "a", "b", "c")
    assert left.end() == []
    assert requested == ["a"]
    assert "workloads on one may still be running: jobs is forbidden" in caplog.text
