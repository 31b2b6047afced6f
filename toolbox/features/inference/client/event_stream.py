"""A parser of server-sent events, after https://html.spec.whatwg.org/multipage/server-sent-events.html.

It differs from the standard where a browser repairs: bytes that are not UTF-8 are an error, and so is an event that is
too large. A field `error`, which llama.cpp has sent, is the data of an event of the type `error`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
ERROR: Final = "error"
"""The type of an event whose data is an error."""
_IGNORED: Final = ("", "id", "retry")  # a comment has the empty name
_FOREIGN_CHARACTERS: Final = 1000


class EventStreamError(Exception):
    """The bytes are not an event stream, or an event exceeds the limit."""


@dataclass(frozen=True)
class Event:
    """An event: its data, and its type, which is empty unless the server names it."""

    data: str
    type: str = ""


class EventStreamParser:
    """Makes events from bytes, which may arrive in pieces of any size.

    Args:
        most_bytes: the size of the largest event. Comments do not count.

    Attributes:
        foreign_line: the beginning of the first line with a field that the standard does not know, such as the text of
            an error that is not an event. The standard ignores such lines.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._line = bytearray()
        self._after_return = False  # a line feed that follows belongs to the same line break
        self._is_first_line = True
        self._data: list[str] = []
        self._type = ""
        self._event_bytes = 0
        self.foreign_line = ""

    def feed(self, content: bytes) -> Iterator[Event]:
        """Yield the events that these bytes complete. Raise EventStreamError."""
        if not content:
            return
        ends_with_return = content.endswith(b"\r")
        if self._after_return:
            content = content.removeprefix(b"\n")
        self._after_return = ends_with_return
        for piece in content.splitlines(keepends=True):
            self._line += piece
            if len(self._line) + self._event_bytes > self._most_bytes:
                raise EventStreamError(f"an event is larger than {self._most_bytes} bytes")
            if piece.endswith((b"\r", b"\n")):
                event = self._end_line()
                if event:
                    yield event

    @property
    def rest(self) -> str:
        """The data of an event that is not complete yet, and the beginning of a line; empty if there are none."""
        line = self._line.decode(errors="replace")
        return "\n".join(self._data) + ("" if line.startswith(":") else line.removeprefix("data:").strip())

    def _end_line(self) -> Event | None:
        content = bytes(self._line).rstrip(b"\r\n")
        self._line.clear()
        if self._is_first_line:
            content = content.removeprefix(_BYTE_ORDER_MARK)
            self._is_first_line = False
        try:
            line = content.decode()
        except UnicodeDecodeError as error:
            raise EventStreamError(f"a line is not UTF-8: {error}") from error
        if not line:
            return self._dispatch()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name in ("data", ERROR):
            self._data.append(value)
            self._event_bytes += len(content)
        if name in ("event", ERROR):
            self._type = value if name == "event" else ERROR
        elif name != "data" and name not in _IGNORED:
            self.foreign_line = self.foreign_line or line[:_FOREIGN_CHARACTERS]
        return None

    def _dispatch(self) -> Event | None:
        event = Event("\n".join(self._data), self._type) if self._data else None
        self._data, self._type, self._event_bytes = [], "", 0
        return event
