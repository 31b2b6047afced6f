"""Passes the events of a run on to the journal, which keeps them, and to the listeners, which show them.

A toolbox command that is called outside a run has a recorder without a journal.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

from toolbox.ground.model import events
from toolbox.ground.model.events import AttemptReleased, Event, JournalEvent, Note, SecretLeft
from toolbox.ground.model.resources import ResourceLedger
from toolbox.ground.system.redaction import Redactor
from toolbox.records.runs import layout
from toolbox.records.runs.journal import Journal
from toolbox.records.runs.run_state import CellAttempt, RunState, StepState

log = logging.getLogger(__name__)

Listener = Callable[[Event], None]
_KEPT = get_args(JournalEvent)


def _ledger_of_user() -> ResourceLedger:
    from toolbox.records.runs import ledger

    return ledger.of_user()


@dataclass(slots=True)
class Recorder:
    """Records the events of one run. Any thread may call it.

    Args:
        root: the run directory, or the artifact directory if there is no run. The identity of a step is its path
            relative to this directory.
        redactor: masks secrets in all events and files.
        listeners: views of the run. They are called with one event at a time.
        past: the state of the run before it was resumed.
        ledger: the remote resources of the run, or of the user if there is no run.
    """

    root: Path
    redactor: Redactor
    listeners: Sequence[Listener] = ()
    journal: Journal | None = None
    past: RunState = field(default_factory=RunState)
    ledger: ResourceLedger = field(default_factory=_ledger_of_user)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _released: set[tuple[str, int]] = field(default_factory=set, repr=False)
    _unmasked: set[str] = field(default_factory=set, repr=False)

    def record(self, event: Event, *, sync: bool = True) -> None:
        """Write an event to the journal and show it to the listeners, without secrets.

        Args:
            sync: wait until the event is on the disk.
        """
        if self.redactor.values():
            event = events.masked(event, self.redactor.redact_nested)
        with self._lock:
            if isinstance(event, AttemptReleased):
                self._released.add((event.step, event.attempt))
            if self.journal is not None and isinstance(event, _KEPT):
                self.journal.append(event, sync=sync)
            for listener in list(self.listeners):
                self._show(listener, event)

    def abandoned_attempts(self) -> list[tuple[StepState, CellAttempt]]:
        """Return the abandoned attempts of earlier sessions that may still be on their targets."""
        attempts = self.past.abandoned_attempts
        return [(step, attempt) for step, attempt in attempts if (step.step, attempt.attempt) not in self._released]

    def sweep(self, step: str, directory: Path) -> None:
        """Mask the secrets in the files of a step, and record a note on each file with a secret."""
        swept = self.redactor.sweep(directory, skip=lambda file: layout.is_record(file.relative_to(self.root)))
        texts = [f"a secret was masked in {file.relative_to(directory)}" for file in swept.masked]
        for file in map(self.identity, swept.binary):
            if file not in self._unmasked:
                self._unmasked.add(file)
                self.record(SecretLeft(step, file))
                texts.append(f"{file} contains a secret, but is not text and was not changed: do not publish it")
        for text in [*texts, *swept.faults]:
            self.record(Note(step, text))

    def _show(self, listener: Listener, event: Event) -> None:
        """Call a listener with an event. A listener that raises an error is removed, and the run continues."""
        try:
            listener(event)
        except (Exception, SystemExit) as error:  # noqa: BLE001  # the run must continue
            self.listeners = [other for other in self.listeners if other is not listener]
            log.warning("a display of the run failed and is no longer updated: %s: %s", type(error).__name__, error)

    def identity(self, directory: Path) -> str:
        """Return the identity of a step or a file, which is its path relative to the root."""
        return str(directory.relative_to(self.root)) if directory.is_relative_to(self.root) else str(directory)
