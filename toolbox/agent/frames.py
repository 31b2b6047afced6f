r"""Two streams in one that is text: how the log of a container carries both, each line with its place.

    out 0 step 1 loss 4.2
    err 0 \x1b[31mslow\x1b[0m
    out 18 password: \

First the stream, then where in it the line begins, in bytes. A backslash is doubled, what cannot be shown is `\xNN`,
and a backslash at the end says that no end of line was printed there. Who reads it twice, or from the middle on, knows
by the places what is new and what is missing.
"""

from __future__ import annotations

import re
from typing import Iterator, NamedTuple, Optional

_LETTERS = {"stdout": "out", "stderr": "err"}
_STREAMS = {letters: stream for stream, letters in _LETTERS.items()}
_LINE = re.compile(rb"(out|err) (\d{1,1000}) (.*)", re.DOTALL)
_ESCAPE = re.compile(rb"\\(?:(\\)|x([0-9a-f]{2}))")
_LONGEST = 4000  # with every byte of it escaped it is one line of a container's log still, of 16 KiB at most


class Piece(NamedTuple):
    """Something that was printed: on which stream, where in it, and what."""

    stream: str
    offset: int
    content: bytes


def encode(stream: str, offset: int, content: bytes) -> bytes:
    """Return the lines for what was printed."""
    found = []
    for line in _lines(content):
        for piece in _pieces(line):
            is_whole = piece.endswith(b"\n")
            text = _escaped(piece[:-1] if is_whole else piece)
            found.append(b"%s %d %s%s\n" % (_LETTERS[stream].encode(), offset, text, b"" if is_whole else b"\\"))
            offset += len(piece)
    return b"".join(found)


def decode(line: bytes) -> Optional[Piece]:
    """Return what a line says, without its end; None where it is none of ours."""
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
    r"""Yield the lines that `\n` ends, and nothing else does."""
    *whole, last = content.split(b"\n")
    yield from (line + b"\n" for line in whole)
    if last:
        yield last


def _pieces(line: bytes) -> Iterator[bytes]:
    """Yield what is short enough, cut between the letters of UTF-8 where it is that."""
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
