"""Parses the responses of HTTP/1.1, after RFC 9112, without a connection.

It is strict: two lengths in one response, a length that is not a number, or a folded header are errors, because a part
of such a response could be read as the next one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_MOST_HEAD_BYTES: Final = 64 << 10
_MOST_LINE_BYTES: Final = 4096  # of the size of a chunk with its extensions
_HEAD_END: Final = b"\r\n\r\n"
_STATUS: Final = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: [^\x00\n]*)?")
_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NOT_IN_VALUES: Final = re.compile(rb"[\x00\r\n]")
_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\x00]*)?")
_LENGTH: Final = re.compile(rb"[0-9]{1,18}")
_INFORMATIONAL: Final = range(100, 200)
_WITHOUT_BODY: Final = (204, 304)


class HttpError(Exception):
    """The bytes are not a response of HTTP/1.1."""


@dataclass(frozen=True, kw_only=True)
class Head:
    """The first part of a response.

    Args:
        length: the bytes of the body; None if they are not known beforehand.
        is_chunked: whether the body consists of chunks.
        keeps_connection: whether the server accepts another request after this response.
    """

    status: int
    headers: Sequence[tuple[bytes, bytes]]
    length: int | None
    is_chunked: bool
    keeps_connection: bool


class ResponseParser:
    """Makes a response from bytes, which may arrive in pieces of any size.

    Args:
        head: the head, as soon as it is complete.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._left = 0  # bytes of the body, or of a chunk, that are missing
        self._is_in_trailer = False
        self.head: Head | None = None
        self.is_complete = False

    @property
    def has_rest(self) -> bool:
        """Whether the server has sent more than the response."""
        return self.is_complete and bool(self._buffer)

    def feed(self, content: bytes) -> bytes:
        """Return the bytes of the body in some bytes of the response. Raise HttpError."""
        self._buffer += content
        while self.head is None:
            if not self._take_head():
                return b""
        if self.is_complete:
            return b""
        return self._take_chunks() if self.head.is_chunked else self._take_body(self.head)

    def feed_end(self) -> None:
        """Note that the connection has ended. Raise HttpError if the response is not complete."""
        if self.head is not None and self.head.length is None and not self.head.is_chunked:
            self.is_complete = True
        if self.is_complete:
            return
        if self.head is None and not self._buffer:
            raise HttpError("the server disconnected without a response")
        if self.head is None or self.head.length is None:
            raise HttpError("the connection ended within the response")
        raise HttpError(f"received {self.head.length - self._left} bytes, expected {self.head.length}")

    def _take_head(self) -> bool:
        end = self._buffer.find(_HEAD_END)
        if end > _MOST_HEAD_BYTES or (end < 0 and len(self._buffer) > _MOST_HEAD_BYTES):
            raise HttpError(f"the head of the response is larger than {_MOST_HEAD_BYTES} bytes")
        if end < 0:
            if not b"HTTP/1.".startswith(self._buffer[:7]):
                raise HttpError("the response does not begin with HTTP/1")
            return False
        lines = bytes(self._buffer[:end]).split(b"\r\n")
        del self._buffer[: end + len(_HEAD_END)]
        head = _head(lines)
        if head.status in _INFORMATIONAL:
            return True
        self.head = head
        self._left = head.length or 0
        self.is_complete = head.length == 0
        return True

    def _take_body(self, head: Head) -> bytes:
        size = len(self._buffer) if head.length is None else min(self._left, len(self._buffer))
        body = self._take(size)
        if head.length is not None:
            self._left -= size
            self.is_complete = self._left == 0
        return body

    def _take_chunks(self) -> bytes:
        pieces = []
        while not self.is_complete:
            if self._left > 2:  # noqa: PLR2004  # the chunk; the line break after it counts too
                size = min(self._left - 2, len(self._buffer))
                pieces.append(self._take(size))
                self._left -= size
                if self._left > 2 or not self._buffer:  # noqa: PLR2004
                    break
            if not self._take_line():
                break
        return b"".join(pieces)

    def _take_line(self) -> bool:
        """Take the line break after a chunk, the line before a chunk, or a line of the trailer, if it is complete."""
        end = self._buffer.find(b"\r\n")
        if end > _MOST_LINE_BYTES or (end < 0 and len(self._buffer) > _MOST_LINE_BYTES):
            raise HttpError("a chunk of the response begins with a line that is too long")
        if end < 0:
            return False
        line = self._take(end + 2)[:-2]
        if self._left:
            if line:
                raise HttpError("a chunk of the response is longer than its size")
            self._left = 0
        elif self._is_in_trailer:
            self.is_complete = not line
        else:
            match = _SIZE.fullmatch(line)
            if not match:
                raise HttpError("a chunk of the response has no valid size")
            size = int(match[1], 16)
            self._is_in_trailer = size == 0
            self._left = size + 2 if size else 0
        return True

    def _take(self, size: int) -> bytes:
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken


def _head(lines: Sequence[bytes]) -> Head:
    status = _STATUS.fullmatch(lines[0])
    if not status:
        raise HttpError("the response does not begin with HTTP/1")
    headers = []
    for line in lines[1:]:
        name, colon, value = line.partition(b":")
        if not colon or not _NAME.fullmatch(name) or _NOT_IN_VALUES.search(value):
            raise HttpError("the response has an invalid header")
        headers.append((name, value.strip(b" \t")))
    values = [(name.lower(), value.lower()) for name, value in headers]
    lengths = {value for name, value in values if name == b"content-length"}
    encodings = [value for name, value in values if name == b"transfer-encoding"]
    options = [option.strip() for name, value in values if name == b"connection" for option in value.split(b",")]
    number = int(status[2])
    if encodings not in ([], [b"chunked"]) or (encodings and lengths) or len(lengths) > 1:
        raise HttpError("the response does not say where its body ends")
    if not all(map(_LENGTH.fullmatch, lengths)):
        raise HttpError("the response has an invalid length")
    length = int(lengths.pop()) if lengths else None
    is_empty = number in _WITHOUT_BODY or number in _INFORMATIONAL
    return Head(
        status=number,
        headers=headers,
        length=0 if is_empty else length,
        is_chunked=bool(encodings) and not is_empty,
        keeps_connection=status[1] == b"1" and b"close" not in options,
    )
