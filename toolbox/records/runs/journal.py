"""The journal of a run, from which all other records are derived: an append-only file with one JSON object per line.

A crash may leave a torn tail, which is one or more incomplete lines at the end. Readers ignore the torn tail, and a
writer cuts it off before it appends. Any other line that cannot be read is damage, which is reported with its line
number. A line that occurs twice counts once.
"""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import json
import os
import sys
import threading
import time
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any, Final, Self, get_args, get_origin

from toolbox.ground.kit import safe_files
from toolbox.ground.model import events
from toolbox.ground.model.errors import InfrastructureError
from toolbox.ground.model.events import JournalEvent
from toolbox.ground.model.text import abbreviated
from toolbox.ground.system import filesystem
from toolbox.records.runs import layout
from toolbox.records.runs.layout import RunDirectory

_KINDS: Final[dict[str, type[Any]]] = {kind.__name__: kind for kind in get_args(events.JournalEvent)}
_Reader = Callable[[Any], Any]  # converts a JSON value to the type of a field; raises TypeError or ValueError
_LOCK_TRIES: Final = 5
_LOCK_SECONDS: Final = 0.05
_LONGEST_LINE: Final = 1 << 26  # bytes: a longer line is not read into memory
_LARGEST_NUMBER: Final = 2**53  # of a whole number
_MAX_ATTEMPTS: Final = 1_000_000
_MAX_SECONDS: Final = 1e10
_FIRST_TIME: Final = datetime(1970, 1, 2, tzinfo=UTC)  # a time of any later year exists in each time zone
_LAST_TIME: Final = datetime(9998, 12, 31, tzinfo=UTC)
_BEGINNING: Final = b'{"time": "'
_encode: Final = json.JSONEncoder(ensure_ascii=False).encode


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """An event with the time at which it was written."""

    time: datetime
    event: JournalEvent


@dataclasses.dataclass(frozen=True, slots=True)
class Damage:
    """A line of a journal or a ledger that cannot be read.

    Args:
        line: the number of the line, from 1.
        file: the name of the file.
    """

    line: int
    reason: str
    file: str = RunDirectory.journal

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


@dataclasses.dataclass(frozen=True, slots=True)
class Contents:
    """The contents of a journal.

    Args:
        entries: the events, oldest first, each once.
        damage: the lines that cannot be read, except lines that a crash tore.
        whole_bytes: the length of the journal without its torn tail.
        is_ended: whether the journal without its torn tail ends with a line break.
    """

    entries: tuple[Entry, ...] = ()
    damage: tuple[Damage, ...] = ()
    whole_bytes: int = 0
    is_ended: bool = True


class RunInUse(InfrastructureError):
    """Another process executes the run, or deletes its resources."""


class Journal:
    """The journal of one run, open for appending. Several threads may append at the same time.

    `Recorder` masks the secrets in an event before it appends the event.
    """

    def __init__(self, directory: Path) -> None:
        self._file = RunDirectory(directory).journal
        self._descriptor = os.open(
            self._file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, filesystem.PRIVATE_FILE
        )
        self._lock()
        self._writing = threading.Lock()
        self._end = 0
        self._is_torn = True
        try:
            self._cut_torn_tail()
        except OSError as error:
            os.close(self._descriptor)
            raise InfrastructureError(f"the journal {self._file} cannot be opened: {error}") from error

    def append(self, event: JournalEvent, *, sync: bool = True) -> None:
        """Write an event.

        Args:
            sync: wait until the event is on the disk. This is required before an action on another system, but not at
                the end of a cell: a resumed run can read from the files of the cell how it ended.

        Raises:
            InfrastructureError: the event could not be written.
        """
        content = _line(Entry(datetime.now(UTC), event))
        try:
            with self._writing:
                self._write(content)
            if sync:
                os.fsync(self._descriptor)
        except OSError as error:
            raise InfrastructureError(f"the journal {self._file} cannot be written: {error}") from error

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _lock(self) -> None:
        """Lock the journal as long as this process lives. The system releases the lock however the process ends."""
        for _ in range(_LOCK_TRIES):
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                time.sleep(_LOCK_SECONDS)  # `is_locked` in another process may hold the lock for a moment
            else:
                return
        os.close(self._descriptor)
        raise RunInUse(f"{self._file.parent} is in use by another process, which is still running")

    def _write(self, content: bytes) -> None:
        if self._is_torn:
            os.ftruncate(self._descriptor, self._end)
        self._is_torn = True
        if os.write(self._descriptor, content) < len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # a partial write means that the disk is full
        self._end += len(content)
        self._is_torn = False

    def _cut_torn_tail(self) -> None:
        """Remove the torn tail, which would become damage in the middle of the journal, and sync the directory."""
        contents = load(self._file.parent)
        os.ftruncate(self._descriptor, contents.whole_bytes)
        if not contents.is_ended:
            os.write(self._descriptor, b"\n")
        self._end = os.fstat(self._descriptor).st_size
        os.fsync(self._descriptor)
        filesystem.sync_directory(self._file.parent)
        self._is_torn = False


def write(directory: Path, entries: Iterable[Entry]) -> None:
    """Write a whole journal, and return when it is on the disk.

    Raises:
        OSError: the file cannot be written.
    """
    filesystem.write_pieces(RunDirectory(directory).journal, map(_line, entries), durable=True)


def _line(entry: Entry) -> bytes:
    event = entry.event
    record = {"time": entry.time.isoformat(timespec="microseconds"), "event": type(event).__name__}
    record |= {name: getattr(event, name) for name in _READERS[type(event)]}
    return filesystem.encode(_encode(record) + "\n")


def is_locked(directory: Path) -> bool:
    """Return whether a process that executes this run is alive."""
    try:
        descriptor = safe_files.open_regular(str(RunDirectory(directory).journal))
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def read(directory: Path) -> tuple[Entry, ...]:
    """Return the events of a run, oldest first. Lines that cannot be read are ignored."""
    return load(directory).entries


def load(directory: Path) -> Contents:
    """Return the contents of the journal of a run; empty if there is no journal.

    Lines that a crash tore are at the end. They are incomplete, or contain null bytes where blocks were not written to
    the disk.

    Raises:
        InfrastructureError: the journal cannot be read.
    """
    file = RunDirectory(directory).journal
    if not safe_files.is_regular(str(file)):
        return Contents()
    try:
        return _load(file)
    except OSError as error:
        raise InfrastructureError(f"the journal {file} cannot be read: {error.strerror}") from error


def _load(file: Path) -> Contents:
    entries: dict[bytes, Entry] = {}
    damage: list[Damage] = []
    torn: list[Damage] = []
    size = whole_bytes = 0
    line = b"\n"
    for number, line in enumerate(_lines(file), start=1):
        size += len(line)
        parsed = _parse(line)
        if isinstance(parsed, Entry):
            damage += torn
            torn.clear()
            entries.setdefault(line.rstrip(b"\n"), parsed)
            whole_bytes = size
        elif _may_be_torn(line):
            torn.append(Damage(number, parsed))
        else:
            damage += [*torn, Damage(number, parsed)]
            torn.clear()
            whole_bytes = size
    return Contents(tuple(entries.values()), tuple(damage), whole_bytes, _is_ended(file, whole_bytes))


def _lines(file: Path) -> Iterator[bytes]:
    """Yield the lines of a journal. A line that is too long is yielded in pieces."""
    with os.fdopen(safe_files.open_regular(str(file)), "rb") as stream:
        while line := stream.readline(_LONGEST_LINE):
            yield line


def _is_ended(file: Path, size: int) -> bool:
    with os.fdopen(safe_files.open_regular(str(file)), "rb") as stream:
        stream.seek(max(0, size - 1))
        return size == 0 or stream.read(1) == b"\n"


def _may_be_torn(line: bytes) -> bool:
    """Return whether a line that cannot be read may be one that a crash tore."""
    text = line.rstrip(b"\n")
    is_beginning = _BEGINNING.startswith(text) or (text.startswith(_BEGINNING) and not text.endswith(b"}"))
    return text == line or b"\0" in line or (bool(text) and is_beginning)


def _parse(line: bytes) -> Entry | str:
    """Return the event of a line, or the reason why the line cannot be read."""
    try:
        record = json.loads(line.decode())
    except UnicodeDecodeError:
        return "the line is not UTF-8"
    except (ValueError, RecursionError):
        return "the line is not JSON" if len(line) < _LONGEST_LINE else f"the line is longer than {_LONGEST_LINE} bytes"
    if not isinstance(record, dict):
        return "the line is not a JSON object"
    name, moment = record.get("event"), record.get("time")
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        return f"the event {abbreviated(name)} is not known to this version"
    try:
        time = datetime.fromisoformat(moment) if isinstance(moment, str) else None
    except ValueError:
        time = None
    if time is None or time.tzinfo is None or not _FIRST_TIME < time < _LAST_TIME:
        return f"the time of the event is {abbreviated(moment)}"
    return _event(kind, record, time)


def _event(kind: type[Any], record: Mapping[str, Any], time: datetime) -> Entry | str:
    """Return the event of a record, or the reason why it cannot be read. Unknown fields of the record are ignored."""
    values = {}
    for name, read_value in _READERS[kind].items():
        if name not in record:
            continue
        try:
            values[name] = read_value(record[name])
        except (TypeError, ValueError):
            return f"{kind.__name__}: `{name}` is {abbreviated(record[name])}"
    try:
        return Entry(time, kind(**values))
    except TypeError:
        missing = [name for name in _required(kind) if name not in values]
        return f"{kind.__name__}: `{', '.join(missing)}` is missing"


def _required(kind: type[Any]) -> list[str]:
    return [field.name for field in dataclasses.fields(kind) if field.default is dataclasses.MISSING]


def _reader(hint: Any) -> _Reader:
    """Return the function that converts a JSON value to a type.

    The function raises a TypeError for a value of another type, and a ValueError for a value that an enum lacks.
    """
    if get_origin(hint) is types.UnionType:  # `TYPE | None`
        inner = _reader(get_args(hint)[0])
        return lambda value: None if value is None else inner(value)
    if get_origin(hint) is tuple:
        item = _reader(get_args(hint)[0])
        return lambda value: tuple(map(item, _of_type(value, list)))
    if issubclass(hint, Enum):
        reader: _Reader = hint
        return reader
    return _number if hint is float else lambda value: _of_type(value, hint)


def _number(value: Any) -> float:
    if type(value) is int and abs(value) <= sys.float_info.max:
        return value
    return float(_of_type(value, float))


def _of_type(value: Any, kind: type[Any]) -> Any:
    if type(value) is not kind:
        raise TypeError(kind)
    if kind is int and abs(value) > _LARGEST_NUMBER:
        raise ValueError(kind)
    return value


def _step(value: Any) -> str:
    if not layout.is_plain_path(step := str(_of_type(value, str))):
        raise ValueError(value)
    return step


def _attempt(value: Any) -> int:
    if not 0 < (number := int(_of_type(value, int))) <= _MAX_ATTEMPTS:
        raise ValueError(value)
    return number


def _seconds(value: Any) -> float:
    if not abs(seconds := _number(value)) <= _MAX_SECONDS:  # also false for a number that is not finite
        raise ValueError(value)
    return seconds


# Paths and times are computed from these fields of all events, so they must be usable as such.
_OF_FIELDS: Final[Mapping[str, _Reader]] = {
    "step": _step,
    "attempt": _attempt,
    "seconds": _seconds,
    "paid_seconds": _seconds,
}


def _reader_of_field(name: str, hint: Any) -> _Reader:
    reader = _OF_FIELDS.get(name)
    if reader is None or type(None) not in typing.get_args(hint):
        return reader or _reader(hint)
    return lambda value: None if value is None else reader(value)


# The readers are made only once, because a journal has many lines.
_READERS: Final = {
    kind: {name: _reader_of_field(name, hint) for name, hint in typing.get_type_hints(kind).items()}
    for kind in _KINDS.values()
}
