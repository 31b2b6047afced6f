"""Runs the steps of a run. Each step has a numbered directory, a verdict and a cause.

The current step is a context variable, so each thread has its own current artifact directory. The verdict of a step is
the worst verdict of its own outcome and of the steps inside it.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from toolbox.ground.model.errors import Cancelled, ToolboxError, describe, outcome_of
from toolbox.ground.model.events import Note, StepFinished, StepKind, StepStarted
from toolbox.ground.model.verdicts import Cause, Verdict, worst
from toolbox.ground.system import cancellation, filesystem
from toolbox.ground.system.context_values import ContextValue
from toolbox.records.runs import layout
from toolbox.records.runs.layout import StepDirectory
from toolbox.records.runs.recorder import Recorder
from toolbox.records.runs.run_state import StepState


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a step ended.

    Args:
        message: why the step did not pass.
    """

    verdict: Verdict
    cause: Cause | None = None
    message: str = ""

    @property
    def first_line(self) -> str:
        """The first line of the message."""
        return self.message.partition("\n")[0]


@dataclass(slots=True)
class Step:
    """A step that is going on or about to begin, or the root of a run, which encloses all steps.

    Args:
        failure: the verdict and cause of a command that fails in this step: an error of the infrastructure, or a
            failure of the product while the product is tested.
        counts: whether the verdict counts for the enclosing step.
        key: identifies the step in a resumed run; consists of the names of the enclosing steps and of the step.
        earlier: the state of the step before the run was resumed; None if the step is new.
        identity: the directory of the step, relative to the run directory.
        record: the content of `step.json`.
    """

    directory: Path
    recorder: Recorder
    name: str
    kind: StepKind = StepKind.GROUP
    failure: tuple[Verdict, Cause] = (Verdict.ERROR, Cause.INFRASTRUCTURE)
    counts: bool = True
    key: str = ""
    earlier: StepState | None = None
    identity: str = field(init=False)
    started: float = field(default_factory=time.monotonic)
    record: dict[str, object] = field(default_factory=dict)
    _names: Counter[str] = field(default_factory=Counter)
    _number: int | None = None
    _outcomes: list[Outcome] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        self.identity = self.recorder.identity(self.directory)

    def note(self, text: str) -> None:
        """Show a line of text, and keep it in the journal."""
        self.recorder.record(Note(self.identity, text))

    def locate(self, name: str, kind: StepKind, *, identity: str | None = None) -> Step:
        """Return the next step with this name, which is about to begin, and create its directory.

        In a resumed run, a repeated command gets a new directory, so that its earlier files stay unchanged. Any other
        step gets the directory that it had before the run was resumed.

        Args:
            identity: identifies the step in a resumed run; None if its name does.
        """
        identity = identity or name
        with self._lock:
            self._names[identity] += 1
            count = self._names[identity]
        key = self._key_of(identity, count)
        earlier = self.recorder.past.latest.get(key)
        if earlier is not None and kind is not StepKind.COMMAND:
            directory = filesystem.make_directory(self.recorder.root / earlier.step)
        else:
            directory = layout.next_directory(self.directory, name, after=self._number)
            self._number = layout.number_of(directory.name)
        return Step(directory, self.recorder, name, kind, self.failure, key=key, earlier=earlier)

    def replayed(self, step: Step, fingerprint: str = "") -> bool:
        """Return whether a step that `locate` returned passed before the run was resumed.

        If so, its pass is recorded in this step, which encloses that step.
        """
        if step.earlier is None or not step.earlier.can_be_replayed(fingerprint):
            return False
        self.recorder.record(Note(step.earlier.step, "the step passed before the run was resumed"))
        self.add(Outcome(Verdict.PASSED))
        return True

    def will_be_replayed(self, name: str, fingerprint: str) -> bool:
        """Return whether the next step with this name passed before the run was resumed, without locating the step."""
        earlier = self.recorder.past.latest.get(self._key_of(name, self._names[name] + 1))
        return earlier is not None and earlier.can_be_replayed(fingerprint)

    def _key_of(self, identity: str, count: int) -> str:
        return f"{self.key}/{identity}" + (f"#{count}" if count > 1 else "")

    def add(self, outcome: Outcome) -> None:
        """Add the outcome of a step inside this one, or of something that this step did itself."""
        with self._lock:
            self._outcomes.append(outcome)

    def add_first(self, outcome: Outcome) -> None:
        """Add an outcome before all others. It is the outcome of the step unless another outcome is worse."""
        with self._lock:
            self._outcomes.insert(0, outcome)

    def first_failure(self) -> Outcome | None:
        """Return the first outcome in this step that is not a pass."""
        with self._lock:
            return next((outcome for outcome in self._outcomes if not outcome.verdict.is_pass), None)

    def outcome(self) -> Outcome | None:
        """Return the first of the worst outcomes in this step; None if nothing has ended in the step."""
        with self._lock:
            return worst(self._outcomes, lambda outcome: outcome.verdict)


_current: ContextValue[Step] = ContextValue("step")
current, entered, entered_by_process = _current.get, _current.entered, _current.entered_by_process


@contextmanager
def opened(
    name: str,
    *,
    kind: StepKind,
    detail: str = "",
    fingerprint: str = "",
    failure: tuple[Verdict, Cause] | None = None,
    counts: bool = True,
    located: Step | None = None,
) -> Iterator[Step]:
    """Run the body as a step inside the current step, in the next numbered directory.

    Args:
        detail: the command line that reproduces the step.
        fingerprint: a digest of the work of the step; a changed fingerprint means different work.
        failure: the verdict and cause of a command that fails in this step; None for those of the enclosing step.
        counts: whether the verdict counts for the enclosing step.
        located: the step, if `Step.locate` was already called.
    """
    parent = required(name)
    if located is None:  # a located step begins even if the run is cancelled, so that it is recorded as cancelled
        cancellation.current().check()
    step = located or parent.locate(name, kind)
    step.failure, step.counts, step.started = failure or parent.failure, counts, time.monotonic()
    step.recorder.record(StepStarted(step.identity, name, kind, detail, step.key, fingerprint))
    StepDirectory(step.directory).failure.unlink(missing_ok=True)  # an earlier session may have written it
    started = datetime.now(UTC).isoformat(timespec="milliseconds")
    _write(step, {"detail": step.recorder.redactor(detail), "started": started})
    try:
        with entered(step):
            yield step
    except BaseException as error:
        verdict, cause = outcome_of(error)
        step.add_first(Outcome(verdict, cause, _explained(error)))
        finish(step, parent)
        raise
    else:
        finish(step, parent)


def required(name: str) -> Step:
    """Return the current step, which will enclose a step with this name.

    Raises:
        RuntimeError: there is no current step.
    """
    parent = current()
    if parent is None:
        raise RuntimeError(f"the step {name} has no enclosing step or artifact directory")
    return parent


def finish(step: Step, parent: Step, *, sync: bool = True) -> None:
    """Record the end of a step. Its verdict is the worst verdict in the step.

    Args:
        sync: wait until the end is on the disk.
    """
    outcome = step.outcome() or Outcome(Verdict.PASSED)
    seconds = round(time.monotonic() - step.started, 3)
    message = step.recorder.redactor(outcome.message)
    if not outcome.verdict.is_pass:
        text = f"{step.identity}: {outcome.verdict} ({outcome.cause})\n{message}\n"
        filesystem.write_text(StepDirectory(step.directory).failure, text)
    _write(
        step,
        {"verdict": outcome.verdict, "cause": outcome.cause, "message": message, "seconds": seconds},
    )
    step.recorder.record(
        StepFinished(
            step.identity,
            step.name,
            step.kind,
            outcome.verdict,
            outcome.cause,
            message,
            seconds,
            step.counts,
        ),
        sync=sync,
    )
    if step.counts:
        parent.add(outcome)


def _write(step: Step, fields: dict[str, object]) -> None:
    """Write `step.json` for people and reports. A resumed run reads only the journal."""
    step.record |= {"step": step.identity, "name": step.name, "kind": step.kind, **fields}
    filesystem.write_json(StepDirectory(step.directory).record, step.record)


def _explained(error: BaseException) -> str:
    if isinstance(error, ToolboxError | Cancelled):
        return str(error)
    where = error.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    location = f" ({where.tb_frame.f_code.co_filename}:{where.tb_lineno})" if where is not None else ""
    return describe(error) + location
