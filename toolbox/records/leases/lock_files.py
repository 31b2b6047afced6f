"""Stores the lease of a machine in a local file, which all users who share the machine can write.

The file is locked with `flock` while it is read or written. The file contains the holder and its process. The lease is
free when this process has ended. If the process runs on another machine, whether it has ended is unknown, so the lease
is free only after it has expired.
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

from toolbox.ground.model.errors import StepError
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.ground.system import filesystem
from toolbox.records.leases.leases import Claim, Record, StoredRecord, now

_FREE: Final = "{}\n"
_READ_SECONDS: Final = 0.5
_SHARED_FILE: Final = 0o066
_LONGEST: Final = 1 << 16
_STARTED: Final = 19  # the index of `starttime` in /proc/PID/stat, counted from the field `state`
_ENDED: Final = "ZX"  # the states of a process that has ended, but still has an entry in /proc


class LockFile:
    """The lease of a machine. The class implements the protocol `toolbox.records.leases.leases.Lock`."""

    def __init__(self, path: Path, label: str = "") -> None:
        self.label = label or str(path)
        self.key = str(path.absolute())
        self._path = path

    def __str__(self) -> str:
        """Return the path of the file."""
        return str(self._path)

    def read(self, timeout: float) -> StoredRecord:  # noqa: ARG002  # a file needs no timeout
        """Return the content of the file. If the file is damaged, for example by a full disk, the lease is free."""
        with self._locked() as descriptor:
            text = _content(descriptor)
        return StoredRecord(_record(text), text)

    def write(self, record: Record | None, version: str, timeout: float) -> str | None:  # noqa: ARG002
        """Replace the content of the file and return the new version; None if the content is no longer `version`."""
        with self._locked() as descriptor:
            if _content(descriptor) != version:
                return None
            text = _text(record) if record is not None else _FREE
            os.pwrite(descriptor, text.encode(), 0)
            os.ftruncate(descriptor, len(text.encode()))
        return text

    @contextmanager
    def watched(self, changed: threading.Event) -> Iterator[float]:  # noqa: ARG002
        """Yield the interval of reads. The event is never set, because changes of the file are not watched."""
        yield _READ_SECONDS

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
                f"{self.label}: the lock file {self._path} cannot be used: {error.strerror}: "
                "all users of the machine must be able to write the file"
            )
            raise StepError(message, verdict=Verdict.ERROR, cause=Cause.CONFIGURATION) from error

    def _open(self) -> int:
        """Open the file. All users who may create files in its directory may also write the file."""
        shared_by = stat.S_IMODE(self._path.parent.stat().st_mode) & _SHARED_FILE
        return filesystem.open_lock(self._path, filesystem.PRIVATE_FILE | shared_by)


def _content(descriptor: int) -> str:
    return os.pread(descriptor, _LONGEST, 0).decode(errors="replace")


def _text(record: Record) -> str:
    claim = dataclasses.asdict(record.claim)
    claim["beats"] = claim.pop("has_heartbeat")
    times = {"acquired": record.acquired.isoformat(), "renewed": record.renewed.isoformat()}
    process = {"process": _process(os.getpid())} if record.claim.has_heartbeat else {}
    return json.dumps({**claim, **times, "forced": record.forced, **process}, indent=2) + "\n"


def _record(text: str) -> Record | None:
    try:
        fields: dict[str, Any] = json.loads(text)
        process = fields.pop("process", None)
        acquired, renewed = (datetime.fromisoformat(fields.pop(name)) for name in ("acquired", "renewed"))
        forced, has_heartbeat = fields.pop("forced"), fields.pop("beats")
        claim = Claim(**{**fields, "ttl": int(fields["ttl"])}, has_heartbeat=has_heartbeat)
        record = Record(claim, acquired, renewed, forced)
        _check(record)
        return None if process is not None and _has_ended(process) else record
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None


def _check(record: Record) -> None:
    """Check a record, because another user may have forged it.

    Raises:
        TypeError: a field has a wrong type, or a time does not have a time zone.
        OverflowError: a time is out of range.
    """
    claim = record.claim
    texts = (claim.holder, claim.owner, claim.purpose, claim.run, record.forced)
    if not all(isinstance(text, str) for text in texts) or not isinstance(claim.has_heartbeat, bool):
        raise TypeError("a field has a wrong type")
    _ = str(record), record.expiry, record.end - now()


def _process(pid: int) -> dict[str, Any]:
    """Return the identity of a process: its id, its start time, and the boot and PID namespace of the machine.

    The id alone would not be enough, because the system reuses ids.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        fields = stat.rpartition(")")[2].split()
        namespace = Path("/proc/self/ns/pid").readlink()
    except OSError:
        return {}
    started = fields[_STARTED] if fields[0] not in _ENDED else "ended"
    return {"machine": f"{boot} {namespace}", "pid": pid, "started": started}


def _has_ended(process: dict[str, Any]) -> bool:
    """Return whether a process has ended; False if the process ran on another machine."""
    own = _process(os.getpid())
    if not own or process.get("machine") != own["machine"]:
        return False
    try:
        os.kill(process["pid"], 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # the process exists, and belongs to another user
        pass
    current = _process(process["pid"])
    return bool(current) and current != process
