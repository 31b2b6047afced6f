"""Where the events of a run go: the journal keeps those that matter later, the listeners show them now.

Used by `steps`, `roles` and the orchestration. A toolbox command by itself has no run: its recorder has no journal.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

from toolbox.model.events import Event, KeptEvent
from toolbox.runs.journal import Journal
from toolbox.system.redaction import Redactor

Listener = Callable[[Event], None]
_KEPT = get_args(KeptEvent)


@dataclass(slots=True)
class Recorder:
    """Takes the events of one run, from any thread.

    Args:
        root: the run directory, or the artifact directory where there is no run. Steps are named from here.
        redactor: takes secrets out of all that is written.
        listeners: views, told of one event at a time.
    """

    root: Path
    redactor: Redactor
    listeners: Sequence[Listener] = ()
    journal: Journal | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def record(self, event: Event) -> None:
        """Keep and show an event."""
        with self._lock:
            if self.journal is not None and isinstance(event, _KEPT):
                self.journal.append(event)  # type: ignore[arg-type]  # narrowed by the tuple of classes
            for listener in self.listeners:
                listener(event)

    def identity(self, directory: Path) -> str:
        """Return the identity of a step: its directory from the root on."""
        return (
            str(directory.relative_to(self.root)) if directory.is_relative_to(self.root) else str(directory)
        )
