"""Steps: what a run does, each with a numbered directory, a verdict and a cause.

A step knows the step around it through a context variable, so that the artifact directory belongs to the thread.
Its verdict is the worst of its own end and of its children's, never guessed from whether an exception arrived.
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

from toolbox.model.errors import Cancelled, ToolboxError, describe, outcome_of
from toolbox.model.events import Note, StepFinished, StepKind, StepStarted
from toolbox.model.verdicts import Cause, Verdict, worst
from toolbox.runs import layout
from toolbox.runs.layout import StepDirectory
from toolbox.runs.recorder import Recorder
from toolbox.runs.run_state import StepState
from toolbox.system import cancellation, filesystem
from toolbox.system.ambient import Ambient


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a step ended.

    Args:
        message: why it did not pass.
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
    """A step that is going on, or the top of a run.

    Args:
        failure: what a command that fails in here means: an error of the infrastructure, or, where the product
            is tested, its failure.
        counts: whether the verdict counts for the step around.
        key: by which the step is known again when the run is resumed: the names on the way to it.
        written: what `step.json` holds.
    """

    directory: Path
    recorder: Recorder
    name: str
    kind: StepKind = StepKind.GROUP
    failure: tuple[Verdict, Cause] = (Verdict.ERROR, Cause.INFRASTRUCTURE)
    counts: bool = True
    key: str = ""
    started: float = field(default_factory=time.monotonic)
    written: dict[str, object] = field(default_factory=dict)
    _names: Counter[str] = field(default_factory=Counter)
    _number: int | None = None
    _outcomes: list[Outcome] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def identity(self) -> str:
        """The directory of the step, from the run directory on."""
        return self.recorder.identity(self.directory)

    def place(self, name: str, kind: StepKind, *, identity: str | None = None) -> Place:
        """Return where the next step of this name goes: where it was before, or the next numbered directory.

        A command that is run again has a new directory, and leaves what it did before as it is; others are entered
        again.

        Args:
            identity: what makes it known again, if that is not its name.
        """
        identity = identity or name
        with self._lock:
            self._names[identity] += 1
            count = self._names[identity]
        key = self._key_of(identity, count)
        before = self.recorder.past.latest.get(key)
        if before is not None and kind is not StepKind.COMMAND:
            return Place(filesystem.make_directory(self.recorder.root / before.step), key, before)
        directory = layout.next_directory(self.directory, name, after=self._number)
        self._number = layout.number_of(directory)
        return Place(directory, key, before)

    def answered(self, place: Place, fingerprint: str = "") -> bool:
        """Tell whether a step need not be run, since the run did so before it was resumed. Its verdict counts here."""
        if place.before is None or not place.before.can_be_replayed(fingerprint):
            return False
        self.recorder.record(Note(place.before.step, "it passed before the run was resumed"))
        self.add(Outcome(Verdict.PASSED))
        return True

    def will_answer(self, name: str, fingerprint: str) -> bool:
        """Tell whether the next step of this name need not be run, before that step has a place (see `answered`)."""
        before = self.recorder.past.latest.get(self._key_of(name, self._names[name] + 1))
        return before is not None and before.can_be_replayed(fingerprint)

    def _key_of(self, identity: str, count: int) -> str:
        return f"{self.key}/{identity}" + (f"#{count}" if count > 1 else "")

    def add(self, outcome: Outcome) -> None:
        """Take in the outcome of a child, or of something that the step did itself."""
        with self._lock:
            self._outcomes.append(outcome)

    def lead_with(self, outcome: Outcome) -> None:
        """Take in the outcome that explains the step: it is the outcome of the step unless another one is worse."""
        with self._lock:
            self._outcomes.insert(0, outcome)

    def first_failure(self) -> Outcome | None:
        """Return the first outcome in this step that is not a pass."""
        with self._lock:
            return next((outcome for outcome in self._outcomes if not outcome.verdict.is_pass), None)

    def outcome(self) -> Outcome | None:
        """Return the worst outcome in this step, the first of several; None when nothing has ended in it."""
        with self._lock:
            verdict = worst(outcome.verdict for outcome in self._outcomes)
            return next((outcome for outcome in self._outcomes if outcome.verdict is verdict), None)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a step goes.

    Args:
        key: see `Step`.
        before: the same step, before the run was resumed.
    """

    directory: Path
    key: str
    before: StepState | None = None


_current: Ambient[Step] = Ambient("step")
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
    place: Place | None = None,
) -> Iterator[Step]:
    """Run the body as a step of the current one, in the next numbered directory.

    Args:
        detail: the command line that reproduces it.
        fingerprint: of what it does; see `StepStarted`.
        failure: see `Step`; as in the step around when it is left out.
        counts: see `Step`.
        place: where it goes, if that was asked for before.
    """
    parent = required(name)
    if place is None:  # a task that has its directory is recorded as cancelled
        cancellation.current().check()
    place = place or parent.place(name, kind)
    step = Step(place.directory, parent.recorder, name, kind, failure or parent.failure, counts, place.key)
    step.recorder.record(StepStarted(step.identity, name, kind, detail, place.key, fingerprint))
    StepDirectory(step.directory).failure.unlink(missing_ok=True)  # of the time before the run was resumed
    started = datetime.now(UTC).isoformat(timespec="milliseconds")
    _write(step, {"detail": step.recorder.redactor(detail), "started": started})
    try:
        with entered(step):
            yield step
    except BaseException as error:
        verdict, cause = outcome_of(error)
        step.lead_with(Outcome(verdict, cause, _explained(error)))
        finish(step, parent)
        raise
    else:
        finish(step, parent)


def required(name: str) -> Step:
    """Return the current step, which one of this name needs around it."""
    parent = current()
    if parent is None:
        raise RuntimeError(f"the step {name} has no step or artifact directory around it")
    return parent


def sweep(step: Step) -> None:
    """Take secrets out of the files of a step, and say so."""
    step.recorder.sweep(step.identity, step.directory)


def finish(step: Step, parent: Step, *, sync: bool = True) -> None:
    """Write down how a step ended: as the worst of what ended in it. `sync`: see `Journal.append`."""
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
    """Write `step.json`, for people and for reports: a resumed run reads the journal alone."""
    step.written |= {"step": step.identity, "name": step.name, "kind": step.kind, **fields}
    filesystem.write_json(StepDirectory(step.directory).record, step.written)


def _explained(error: BaseException) -> str:
    if isinstance(error, ToolboxError | Cancelled):
        return str(error)
    where = error.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    place = f" ({where.tb_frame.f_code.co_filename}:{where.tb_lineno})" if where is not None else ""
    return describe(error) + place
