"""The faults that a test sets: which calls fail, hang or are slow, and when.

A fault applies to calls by their method, zone and name, with patterns as in file names. `first` and `times` choose
among the calls that match. The first fault that applies to a call decides.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

from google.rpc import error_details_pb2
from google.rpc.status_pb2 import Status

from tests.features.tpu.servers.tpu.refusals import INTERNAL, ApiError, with_event_id


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Args:
        method: pattern of the methods, for example `CreateNode` or `Get*`. `ProvisionQueuedResource` stands for the
            work after a queued resource has got capacity. Then `when` has no meaning.
        code: the error, for example `UNAVAILABLE`; empty means no error.
        when: `before`: the call has no effect. `after`: the call takes effect, but its response is lost.
            `operation`: the call succeeds, and its operation ends with the error. `late`: the call fails at once, and
            takes effect `delay` seconds later.
        zone: pattern of the zones.
        name: pattern of the ids of the resources. For lists, the id is empty.
        first: number of the first call that it applies to, among those that match.
        times: number of calls to which the fault applies; None means without limit.
        delay: seconds by the clock of the server, with `late` only.
        hang: the call is not answered until the client gives up.
        reason: the reason in the details of the error, for example `RATE_LIMIT_EXCEEDED`.
        operation_seconds: the time that the operation takes, instead of the usual time.
    """

    method: str = "*"
    code: str = ""
    message: str = ""
    when: Literal["before", "after", "operation", "late"] = "before"
    zone: str = "*"
    name: str = "*"
    first: int = 1
    times: int | None = 1
    delay: float = 0.0
    hang: bool = False
    operation_seconds: float | None = None
    reason: str = ""

    def matches(self, method: str, zone: str, name: str) -> bool:
        """Return whether the method, the zone and the name of a call match the fault."""
        return fnmatchcase(method, self.method) and fnmatchcase(zone, self.zone) and fnmatchcase(name, self.name)

    def duration(self, usual: float) -> float:
        """Return the time that the operation takes."""
        return usual if self.operation_seconds is None else self.operation_seconds

    def operation_error(self) -> Status | None:
        """Return the error with which the operation ends; None means that the call has no operation that fails."""
        error = self.error() if self.when == "operation" else None
        return error.status() if error is not None else None

    def error(self) -> ApiError | None:
        """Return the error of the call or of its operation, or None."""
        if not self.code:
            return None
        info = error_details_pb2.ErrorInfo(reason=self.reason, domain="googleapis.com")
        return ApiError(self.code, self.message or _usual_message(self.code), [info] if self.reason else [])


def _usual_message(code: str) -> str:
    messages = {
        "UNAVAILABLE": "The service is currently unavailable.",
        "DEADLINE_EXCEEDED": "Deadline Exceeded",
        "UNAUTHENTICATED": "Request had invalid authentication credentials. Expected OAuth 2 access token, login "
        "cookie or other valid authentication credential. See "
        "https://developers.google.com/identity/sign-in/web/devconsole-project.",
        "INTERNAL": with_event_id(INTERNAL),
        "PERMISSION_DENIED": "The caller does not have permission",
    }
    return messages.get(code, code)


@dataclass(slots=True)
class _Entry:
    fault: Fault
    matched: int = 0
    applied: int = 0

    def applies(self) -> bool:
        fault = self.fault
        self.matched += 1
        if self.matched < fault.first or self.applied == fault.times:
            return False
        self.applied += 1
        return True


@dataclass(slots=True)
class Faults:
    """The faults of a server."""

    _entries: list[_Entry] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, fault: Fault) -> None:
        """Apply a fault from now on."""
        with self._lock:
            self._entries.append(_Entry(fault))

    def clear(self) -> None:
        """Remove all faults."""
        with self._lock:
            self._entries.clear()

    def take(self, method: str, zone: str, name: str) -> Fault:
        """Return the fault that applies to a call, or a fault without effect. All matching faults count the call."""
        with self._lock:
            found = [one.fault for one in self._entries if one.fault.matches(method, zone, name) and one.applies()]
        return found[0] if found else Fault()
