r"""Encodes two streams as lines of one text stream, the log of a container. Each line states its offset in the stream.

    out 0 step 1 loss 4.2
    err 0 \x1b[31mslow\x1b[0m
    out 18 password: \

A line has the name of its stream, its offset in bytes, and its text. A backslash is doubled, a byte that cannot be
printed is written as `\xNN`, and a backslash at the end says that the program printed no end of line there. The offsets
show a reader which lines are new and which are missing, also if it reads lines twice or starts in the middle.
"""

from __future__ import annotations

import re
from typing import Iterator, NamedTuple, Optional

_LETTERS = {"stdout": "out", "stderr": "err"}
_STREAMS = {letters: stream for stream, letters in _LETTERS.items()}
_LINE = re.compile(rb"(out|err) (\d{1,1000}) (.*)", re.DOTALL)
_ESCAPE = re.compile(rb"\\(?:(\\)|x([0-9a-f]{2}))")
_LONGEST = 4000  # even with every byte escaped, a piece fits into a line of a container's log (16 KiB)


class Piece(NamedTuple):
    """A piece of output: its stream, its offset in the stream, and its content."""

    stream: str
    offset: int
    content: bytes


def encode(stream: str, offset: int, content: bytes) -> bytes:
    """Return the lines that encode a piece of output."""
    found = []
    for line in _lines(content):
        for piece in _pieces(line):
            is_whole = piece.endswith(b"\n")
            text = _escaped(piece[:-1] if is_whole else piece)
            found.append(b"%s %d %s%s\n" % (_LETTERS[stream].encode(), offset, text, b"" if is_whole else b"\\"))
            offset += len(piece)
    return b"".join(found)


def decode(line: bytes) -> Optional[Piece]:
    """Return the piece that a line encodes; None if the line is not a frame. The line has no line break at its end."""
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    stream, offset, text = match.groups()
    is_whole = (len(text) - len(text.rstrip(b"\\"))) % 2 == 0
    content = text if is_whole else text[:-1]
    if b"\\" in content:
        content = _ESCAPE.sub(_unescaped, content)
    return Piece(_STREAMS[stream.decode()], int(offset), content + b"\n" if is_whole else content)


def _lines(content: bytes) -> Iterator[bytes]:
    r"""Split a content into lines. Only `\n` ends a line."""
    *whole, last = content.split(b"\n")
    yield from (line + b"\n" for line in whole)
    if last:
        yield last


def _pieces(line: bytes) -> Iterator[bytes]:
    """Yield the parts of a line that are short enough. UTF-8 text is cut between characters."""
    start = 0
    while start < len(line):
        end = min(start + _LONGEST, len(line))
        while end < len(line) and end > start + _LONGEST - 4 and line[end] & 0xC0 == 0x80:  # noqa: PLR2004  # RFC 3629
            end -= 1
        yield line[start:end]
        start = end


def _escaped(content: bytes) -> bytes:
    if content.isascii():
        if content.decode("ascii").isprintable():
            return content.replace(b"\\", b"\\\\")
    else:
        try:
            if content.decode("utf-8").isprintable():
                return content.replace(b"\\", b"\\\\")
        except UnicodeDecodeError:
            pass
    return b"".join(_escaped_byte(byte) for byte in content)


def _escaped_byte(byte: int) -> bytes:
    if byte == ord("\\"):
        return b"\\\\"
    return bytes([byte]) if 0x20 <= byte < 0x7F or byte == ord("\t") else b"\\x%02x" % byte  # noqa: PLR2004  # ASCII


def _unescaped(match: re.Match[bytes]) -> bytes:
    return b"\\" if match[1] else bytes([int(match[2], 16)])
