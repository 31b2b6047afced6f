"""The faults that a test sets: which requests fail, are slow or lose their connection.

The messages and headers of rate limits are those of
https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from http import HTTPStatus
from typing import Any, Final

_LIMITS: Final = "https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api"


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to a request.

    Args:
        status: the status of the answer; None means that the endpoint answers.
        content: the JSON of the answer, or its text.
        takes_effect: whether the endpoint carries out the request although the answer is another one.
        is_late: whether the effect comes late: just before the endpoint answers the next request of the same method.
        drops_connection: whether the connection ends by a TCP reset instead of an answer.
        truncates: whether the connection ends in the middle of the answer.
        delay: seconds before the answer. The wait ends early when the server stops.
    """

    status: int | None = None
    content: Mapping[str, Any] | str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    takes_effect: bool = False
    is_late: bool = False
    drops_connection: bool = False
    truncates: bool = False
    delay: float = 0.0


def server_error(status: int = HTTPStatus.BAD_GATEWAY, *, takes_effect: bool = False, is_late: bool = False) -> Fault:
    """Return an error of the server, whose answer is a page and not JSON for 502, 503 and 504."""
    content: Mapping[str, Any] | str = "<html><body><h1>Unicorn!</h1></body></html>"
    if status == HTTPStatus.INTERNAL_SERVER_ERROR:
        content = {"message": "Server Error", "documentation_url": "https://docs.github.com/rest", "status": "500"}
    return Fault(status, content, takes_effect=takes_effect, is_late=is_late)


def dropped_connection(*, takes_effect: bool = False, truncates: bool = False) -> Fault:
    """Return the loss of a connection before the answer, or in the middle of the answer."""
    return Fault(drops_connection=not truncates, truncates=truncates, takes_effect=takes_effect or truncates)


def slow(seconds: float) -> Fault:
    """Return a delay of the answer."""
    return Fault(delay=seconds)


def primary_rate_limit(*, resets_in: float = 1.0, status: int = HTTPStatus.FORBIDDEN) -> Fault:
    """Return the refusal of a client that has used all its requests of the hour.

    Args:
        resets_in: seconds until the client may send requests again; the header has whole seconds.
    """
    reset = str(int(time.time() + resets_in))
    numbers = {"limit": "1000", "remaining": "0", "used": "1000", "reset": reset, "resource": "core"}
    headers = {f"x-ratelimit-{name}": number for name, number in numbers.items()}
    message = "API rate limit exceeded for user ID 1001."
    return Fault(status, {"message": message, "documentation_url": _LIMITS, "status": str(int(status))}, headers)


def secondary_rate_limit(*, retry_after: int | None = 1, status: int = HTTPStatus.FORBIDDEN) -> Fault:
    """Return the refusal of a client that has sent too much at a time.

    Args:
        retry_after: seconds that the client must wait; None means that GitHub does not tell the time.
    """
    headers = {} if retry_after is None else {"retry-after": str(retry_after)}
    content = {
        "message": "You have exceeded a secondary rate limit. Please wait a few minutes before you try again. "
        "If you reach out to GitHub Support for help, please include the request ID 0400:0001.",
        "documentation_url": f"{_LIMITS}#about-secondary-rate-limits",
        "status": str(int(status)),
    }
    return Fault(status, content, headers)


@dataclass(slots=True)
class _Entry:
    method: str
    path: str
    fault: Fault
    first: int
    times: int | None
    matched: int = 0

    def matches(self, method: str, path: str) -> bool:
        return fnmatchcase(method, self.method) and fnmatchcase(path, self.path)

    def applies(self) -> bool:
        self.matched += 1
        last = None if self.times is None else self.first + self.times
        return self.matched >= self.first and (last is None or self.matched < last)


class Faults:
    """The faults of a server."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []
        self._lock = threading.Lock()

    def add(self, method: str, path: str, fault: Fault, *, first: int = 1, times: int | None = 1) -> None:
        """Apply a fault to requests from now on.

        Args:
            method: pattern of methods, as in file names.
            path: pattern of paths without the query, for example `*/issues/7/comments`.
            first: the number of the first request to which the fault applies, among those that match.
            times: number of requests to which the fault applies; None means without limit.
        """
        with self._lock:
            self._entries.append(_Entry(method, path, fault, first, times))

    def clear(self) -> None:
        """Remove all faults."""
        with self._lock:
            self._entries.clear()

    def take(self, method: str, path: str) -> Fault:
        """Return the first fault that applies to a request, or a fault without effect. All that match count it."""
        with self._lock:
            matching = [entry for entry in self._entries if entry.matches(method, path)]
            applying = [entry.fault for entry in matching if entry.applies()]
        return applying[0] if applying else Fault()
