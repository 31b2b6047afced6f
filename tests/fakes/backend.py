"""Fake machines on which nothing runs, for the tests of the scheduler: a test sets how and when each workload ends.

A workload is identified by the first word of its command. `Machines.log` records each call of a backend and each end
of a workload, in order: `submit a`, `adopt a`, `watch a` (the first poll), `end a`, `collect a`, `cancel a`,
`release a`.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from toolbox.ground.model.errors import StepError
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.ground.model.workloads import (
    AttemptState,
    AttemptStatus,
    EndedBy,
    Handle,
    TargetContext,
    Workload,
    WorkloadOutcome,
)
from toolbox.ground.system import filesystem
from toolbox.matrix.targets import PlannedTarget


@dataclass(frozen=True, slots=True)
class Ending:
    """How an attempt ends.

    Args:
        code: exit code of the workload.
        by: what ends the workload.
        after: log entries after which the attempt ends, such as `("submit b",)`. An entry that is listed twice has
            to be logged twice. An attempt also ends when it is cancelled.
        leaves: content of the files that the attempt leaves, by file name.
        refusal: error with which `submit` fails.
        lost: reason why the target is unreachable, instead of an outcome.
        remark: further fields of the outcome, as a supervisor reports them.
        waits: reason why the workload has not started: the message of its status until it ends.
    """

    code: int = 0
    by: EndedBy = EndedBy.EXIT
    after: Sequence[str] = ()
    leaves: Mapping[str, str] = field(default_factory=dict)
    refusal: Exception | None = None
    lost: str = ""
    remark: Mapping[str, int | str] = field(default_factory=dict)
    waits: str = ""

    def status(self) -> AttemptStatus:
        """Return the status of the attempt after its end."""
        if self.lost:
            return AttemptStatus(AttemptState.UNREACHABLE, message=self.lost)
        code = self.code if self.by is EndedBy.EXIT else None
        outcome = WorkloadOutcome(self.by, code, seconds=1.5)
        return AttemptStatus(AttemptState.ENDED, dataclasses.replace(outcome, **self.remark))  # type: ignore[arg-type]


NEVER = Ending(after=("never",))
CRASH = Ending(code=1)
BROKEN = Ending(by=EndedBy.LOST, remark={"message": "the machine was restarted"})


@dataclass(slots=True)
class _Attempt:
    word: str
    target: str
    ending: Ending
    context: TargetContext
    status: AttemptStatus
    is_watched: bool = False


class Machines:
    """All machines of a test.

    Args:
        endings: endings of the attempts of each workload, in order, by the workload's word. The last ending is
            repeated. Workloads without an entry succeed at once.
    """

    def __init__(self, endings: Mapping[str, Ending | Sequence[Ending]] | None = None) -> None:
        self._endings = {word: [own] if isinstance(own, Ending) else list(own) for word, own in (endings or {}).items()}
        self._attempts: dict[str, _Attempt] = {}
        self._lock = threading.RLock()
        self.log: list[str] = []
        self.peaks: Counter[str] = Counter()  # most attempts at once, by target; `all` for all targets
        self.targets_of: dict[str, list[str]] = {}  # targets on which attempts started, by workload
        self.closed: list[str] = []
        self.away: set[str] = set()  # targets that do not answer

    def target(self, name: str, *labels: str, **capacity: int) -> PlannedTarget:
        """Return a target of these machines."""
        return PlannedTarget(name, "fake", _Description(self), labels, capacity)

    def began(self) -> list[str]:
        """Return the words of the attempts that were started, in their order."""
        return [text.removeprefix("submit ") for text in self.log if text.startswith("submit ")]

    def find(self, word: str, name: str, context: TargetContext, directory: Path) -> Handle | None:
        """Adopt the attempt of this name, if it exists."""
        with self._lock:
            if context.name in self.away:
                raise StepError("no route to host", verdict=Verdict.ERROR, cause=Cause.INFRASTRUCTURE)
            if name not in self._attempts:
                return None
            # Another process watches the attempt now.
            self._attempts[name].context = context
            self._record(f"adopt {word}")
            return Handle(name, directory)

    def submit(self, word: str, name: str, context: TargetContext) -> None:
        """Start an attempt, or adopt the attempt of this name."""
        with self._lock:
            if self.find(word, name, context, Path()) is not None:
                return
            endings = self._endings.get(word, [Ending()])
            ending = endings.pop(0) if len(endings) > 1 else endings[0]
            self.targets_of.setdefault(word, []).append(context.name)
            if ending.refusal is None:
                status = AttemptStatus(AttemptState.RUNNING, message=ending.waits)
                self._attempts[name] = _Attempt(word, context.name, ending, context, status)
            self._count()
            self._record(f"submit {word}")
            if ending.refusal is not None:
                raise ending.refusal

    def status(self, name: str) -> AttemptStatus:
        """Return the status of an attempt."""
        with self._lock:
            attempt = self._attempts[name]
            if not attempt.is_watched:
                attempt.is_watched = True
                self._record(f"watch {attempt.word}")
            return attempt.status

    def collect(self, name: str, directory: Path) -> None:
        """Write the files that an attempt leaves, as a supervisor does."""
        attempt = self._attempts[name]
        outcome = attempt.status.outcome
        assert outcome is not None, "the attempt has not ended"
        for file, text in attempt.ending.leaves.items():
            filesystem.write_text(directory / file, text)
        filesystem.write_json(directory / "outcome.json", {**dataclasses.asdict(outcome), "log_dropped": {}})
        if outcome.exit_code is not None:
            filesystem.write_text(directory / "exit_code", f"{outcome.exit_code}\n")
        self.record(f"collect {attempt.word}")

    def cancel(self, name: str) -> None:
        """Cancel an attempt, which ends at once."""
        with self._lock:
            self._record(f"cancel {self._attempts[name].word}")
            self._end(name, AttemptStatus(AttemptState.ENDED, WorkloadOutcome(EndedBy.CANCELLED, 143)))

    def release(self, name: str) -> None:
        """Log that an attempt is released."""
        self.record(f"release {self._attempts[name].word}")

    def record(self, text: str) -> None:
        """Log an entry, and end the attempts that waited for it."""
        with self._lock:
            self._record(text)

    def _record(self, text: str) -> None:
        self.log.append(text)
        for name, attempt in list(self._attempts.items()):
            if not Counter(attempt.ending.after) - Counter(self.log):
                self._end(name, attempt.ending.status())

    def _end(self, name: str, status: AttemptStatus) -> None:
        attempt = self._attempts[name]
        if not attempt.status.state.is_over:
            attempt.status = status
            self._record(f"end {attempt.word}")
            attempt.context.notify(name)

    def _count(self) -> None:
        running = [attempt.target for attempt in self._attempts.values() if not attempt.status.state.is_over]
        for target, count in [*Counter(running).items(), ("all", len(running))]:
            self.peaks[target] = max(self.peaks[target], count)


@dataclass(frozen=True, slots=True)
class _Description:
    """The description of a fake target, in place of a configured one."""

    keeps_attempts: ClassVar[bool] = True
    machines: Machines

    def open(self, context: TargetContext) -> FakeBackend:
        """Return the backend of the target."""
        return FakeBackend(self.machines, context)

    def address(self, name: str) -> str | None:
        """Return the address of the target for Ansible."""
        return f"{name}.example"


@dataclass(frozen=True, slots=True)
class FakeBackend:
    """A backend that executes nothing. Its methods are those of `toolbox.ground.extensions.protocols.Backend`."""

    machines: Machines
    context: TargetContext

    def submit(self, workload: Workload, name: str, directory: Path) -> Handle:
        self.machines.submit(workload.command[0], name, self.context)
        return Handle(name, directory)

    def poll(self, handles: Iterable[Handle]) -> Mapping[Handle, AttemptStatus]:
        return {handle: self.machines.status(handle.name) for handle in handles}

    def collect(self, handle: Handle, workload: Workload) -> None:  # noqa: ARG002
        self.machines.collect(handle.name, handle.directory)

    def cancel(self, handle: Handle) -> None:
        self.machines.cancel(handle.name)

    def release(self, handle: Handle) -> None:
        self.machines.release(handle.name)

    def find(self, workload: Workload, name: str, directory: Path) -> Handle | None:
        return self.machines.find(workload.command[0], name, self.context, directory)

    def teardown_run(self) -> None:
        self.machines.record(f"leave {self.context.name}")

    def close(self) -> None:
        self.machines.closed.append(self.context.name)
