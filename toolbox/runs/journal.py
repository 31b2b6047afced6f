"""The journal of a run: one JSON object a line, appended. Everything else about a run is derived from it.

A torn last line is what a crash leaves: a reader drops it, and a writer ends it before it goes on.
"""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, get_args

from toolbox.model import events
from toolbox.model.bounds import Direction, Side
from toolbox.model.errors import InfrastructureError
from toolbox.model.events import KeptEvent, StepKind
from toolbox.model.verdicts import Cause, Verdict
from toolbox.system import files
from toolbox.system.redaction import Redactor

FILE: Final = "journal.jsonl"
_KINDS: Final[dict[str, type[Any]]] = {kind.__name__: kind for kind in get_args(events.KeptEvent)}
_LOOKS: Final = 5
_LOOK_SECONDS: Final = 0.05
_ENUMS: Final[dict[str, Any]] = {
    "kind": StepKind,
    "verdict": Verdict,
    "cause": Cause,
    "direction": Direction,
    "side": Side,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """An event with the time at which it was written."""

    time: datetime
    event: KeptEvent


class Journal:
    """The journal of one run, open for appending. Lines are whole, also from several threads."""

    def __init__(self, directory: Path, redactor: Redactor) -> None:
        self._redactor = redactor
        self._file = directory / FILE
        self._descriptor = os.open(self._file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, files.PRIVATE_FILE)
        self._lock()
        self._is_torn = True

    def append(self, event: KeptEvent, *, sync: bool = True) -> None:
        """Write an event.

        Args:
            sync: wait until the disk has it. What is about to be done to the outside world needs that; the end of a
                cell, whose own files tell it again, does not.

        Raises:
            InfrastructureError: the disk did not take it.
        """
        masked = events.masked(event, self._redactor.texts)
        record = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "event": type(event).__name__,
            **{field.name: getattr(masked, field.name) for field in dataclasses.fields(masked)},
        }
        content = files.encode(json.dumps(record, ensure_ascii=False) + "\n")
        try:
            if self._is_torn:
                self._end_torn_line()
            self._is_torn = True
            if os.write(self._descriptor, content) < len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # noqa: TRY301  # as a write of 0 bytes says
            self._is_torn = False
            if sync:
                os.fsync(self._descriptor)
        except OSError as error:
            raise InfrastructureError(f"the journal {self._file} cannot be written: {error}") from error

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _lock(self) -> None:
        """Hold the journal while this process lives; the system lets it go whatever ends us."""
        for _ in range(_LOOKS):
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                time.sleep(_LOOK_SECONDS)  # somebody may only be looking who holds it (`is_held`)
            else:
                return
        os.close(self._descriptor)
        raise InfrastructureError(f"{self._file.parent} is the run of another process, which is alive")

    def _end_torn_line(self) -> None:
        size = os.fstat(self._descriptor).st_size
        if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
            os.write(self._descriptor, b"\n")


def is_held(directory: Path) -> bool:
    """Tell whether a process that runs this run is alive."""
    try:
        descriptor = os.open(directory / FILE, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def read(directory: Path) -> Iterator[Entry]:
    """Yield the events of a run, oldest first. Lines that a crash tore are left out."""
    file = directory / FILE
    if not file.is_file():
        return
    with file.open(encoding="utf-8", errors="replace") as stream:
        for line in stream:
            if (entry := _parse(line)) is not None:
                yield entry


def _parse(line: str) -> Entry | None:
    try:
        record = json.loads(line)
        kind = _KINDS[record.pop("event")]
        time = datetime.fromisoformat(record.pop("time"))
        names = {field.name for field in dataclasses.fields(kind)}
        return Entry(time, kind(**{key: _value(key, value) for key, value in record.items() if key in names}))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _value(key: str, value: Any) -> Any:
    if value is not None and key in _ENUMS:
        return _ENUMS[key](value)
    return tuple(value) if isinstance(value, list) else value
