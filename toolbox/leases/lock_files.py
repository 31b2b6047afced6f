"""Stores the lease of a machine in a file on it, which all users who share the machine can write.

The file is read and written under `flock`, which the system releases when a process ends. The file names the holder
and its process. The lease is free as soon as this process has ended; if it ran on another machine, the lease expires.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from toolbox.leases.leases import Claim, Record, Seen, now
from toolbox.model.errors import StepError
from toolbox.model.verdicts import Cause, Verdict
from toolbox.system import filesystem

_NOBODY: Final = "{}\n"
_LOOK_SECONDS: Final = 0.5  # a local file is cheap to read
_SHARED_FILE: Final = 0o066
_LONGEST: Final = 1 << 16
_STARTED: Final = 19  # index of `starttime` in /proc/PID/stat, counted from the field `state`
_ENDED: Final = "ZX"  # states of a process that has ended, and for which its parent has not waited yet


class LockFile:
    """The lease of a machine, a `toolbox.leases.leases.Lock`."""

    def __init__(self, path: Path, label: str = "") -> None:
        self.label = label or str(path)
        self.key = str(path.absolute())
        self._path = path

    def __str__(self) -> str:
        """Return the path of the file."""
        return str(self._path)

    def read(self, timeout: float) -> Seen:  # noqa: ARG002  # a file answers at once
        """See `Lock`. The lease is free if the file is damaged, for example because the disk was full."""
        with self._locked() as descriptor:
            text = _content(descriptor)
        return Seen(_record(text), text)

    def write(self, record: Record | None, version: str, timeout: float) -> str | None:  # noqa: ARG002
        """See `Lock`."""
        with self._locked() as descriptor:
            if _content(descriptor) != version:
                return None
            text = _text(record) if record is not None else _NOBODY
            os.pwrite(descriptor, text.encode(), 0)
            os.ftruncate(descriptor, len(text.encode()))
        return text

    @contextmanager
    def watched(self, news: threading.Event) -> Iterator[float]:  # noqa: ARG002
        """See `Lock`."""
        yield _LOOK_SECONDS

    @contextmanager
    def _locked(self) -> Iterator[int]:
        try:
            descriptor = self._open()
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                yield descriptor
            finally:
                os.close(descriptor)
        except OSError as error:
            message = (
                f"{self.label}: the lock file {self._path}: {error.strerror}: all its users must be able to write it"
            )
            raise StepError(message, verdict=Verdict.ERROR, cause=Cause.CONFIGURATION) from error

    def _open(self) -> int:
        """Open the file. Users who may create files in its directory share the lease, so they may write the file."""
        shared_by = stat.S_IMODE(self._path.parent.stat().st_mode) & _SHARED_FILE
        return filesystem.open_lock(self._path, filesystem.PRIVATE_FILE | shared_by)


def _content(descriptor: int) -> str:
    return os.pread(descriptor, _LONGEST, 0).decode(errors="replace")


def _text(record: Record) -> str:
    claim = dataclasses.asdict(record.claim)
    moments = {"acquired": record.acquired.isoformat(), "renewed": record.renewed.isoformat()}
    process = {"process": _process(os.getpid())} if record.claim.beats else {}
    return json.dumps({**claim, **moments, "forced": record.forced, **process}, indent=2) + "\n"


def _record(text: str) -> Record | None:
    try:
        found: dict[str, Any] = json.loads(text)
        process = found.pop("process", None)
        acquired, renewed = (datetime.fromisoformat(found.pop(name)) for name in ("acquired", "renewed"))
        forced = found.pop("forced")
        record = Record(Claim(**{**found, "ttl": int(found["ttl"])}), acquired, renewed, forced)
        _check(record)
        return None if process is not None and _is_gone(process) else record
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None


def _check(record: Record) -> None:
    """Check a record that another user may have forged.

    Raises:
        TypeError: a field has the wrong type, or a time has no zone.
        OverflowError: a time is out of range.
    """
    claim = record.claim
    texts = (claim.holder, claim.owner, claim.purpose, claim.run, record.forced)
    if not all(isinstance(text, str) for text in texts) or not isinstance(claim.beats, bool):
        raise TypeError("a field has another type")
    _ = str(record), record.expiry, record.end - now()


def _process(pid: int) -> dict[str, Any]:
    """Return the identity of a process: its id, its start (because ids are reused), and the boot of the machine."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        fields = stat.rpartition(")")[2].split()
        namespace = Path("/proc/self/ns/pid").readlink()
    except OSError:
        return {}
    started = fields[_STARTED] if fields[0] not in _ENDED else "ended"
    return {"machine": f"{boot} {namespace}", "pid": pid, "started": started}


def _is_gone(process: dict[str, Any]) -> bool:
    """Return whether a process has ended; False for a process of another machine."""
    here = _process(os.getpid())
    if not here or process.get("machine") != here["machine"]:
        return False
    try:
        os.kill(process["pid"], 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # the process exists, and belongs to another user
        pass
    found = _process(process["pid"])
    return bool(found) and found != process
