"""Masks secret values in texts and in streams of bytes, in every form in which programs print them.

The orchestrator masks all files of a run with it, the agent masks the logs of a workload. A form is the value in one
encoding. Searching for each form in turn is faster than one regular expression for all of them.
"""

from __future__ import annotations

import binascii
import itertools
import json
import re
from typing import Iterable, Iterator, List, Sequence, Set

MASK = b"***"
# A value of one or two characters occurs in every text: masking it would hide the text and protect nothing.
_SHORTEST = 3
_SHORTEST_LINE = 6
# A shorter piece of base64 may occur by chance.
_SHORTEST_BASE64 = 6
_SHORTEST_PADDED = 8
# A program that wraps base64 does so after 76 characters (RFC 2045), which encode 57 bytes.
_LINE_BYTES = 57
# The characters besides letters, digits and `-._~` that a program may leave unquoted in a URL. In this order: two
# settings of Python's `quote`, JavaScript's `encodeURIComponent` and `encodeURI`, and HTML forms.
_URL_SAFE = ("", "/", "!'()*", ";,/?:@&=+$!'()*#", "*")
_DOUBLE_QUOTES = ('"', "&quot;", "&#34;")
_SINGLE_QUOTES = ("'", "&#x27;", "&#39;", "&apos;")


def forms(value: str) -> Set[str]:
    """Return the texts that reveal a secret value. Texts that are too short to mask are left out."""
    found = {form for part in _parts(value) for form in _written(part)}
    found.update(_base64(value.strip().encode("utf-8", "surrogateescape")))
    return {form for form in found if len(form) >= _SHORTEST}


def patterns(values: Iterable[str]) -> List[bytes]:
    """Return the forms of secret values as bytes, the longest first: a form may be a part of another form."""
    found = {form.encode("utf-8", "surrogateescape") for value in values for form in forms(value)}
    return sorted(found, key=len, reverse=True)


class Masker:
    """Masks secrets in a stream that comes in pieces. Holds back at most the length of the longest form.

    Args:
        patterns: the forms to mask, the longest first.
    """

    def __init__(self, patterns: Sequence[bytes]) -> None:
        self._patterns = patterns
        self._held = b""

    def take(self, content: bytes) -> bytes:
        """Take a piece of the stream, and return the masked bytes that can be passed on."""
        if not self._patterns:
            return content
        content, self._held = self._held + content, b""
        for pattern in self._patterns:
            content = content.replace(pattern, MASK)
            # Hold back a possible beginning of this form now: the next forms are shorter, and may match inside of it.
            if overlap := _overlap(content, pattern):
                content, self._held = content[:-overlap], content[-overlap:] + self._held
        return content

    def end(self) -> bytes:
        """Return the masked rest of the stream, which was held back."""
        content, self._held = self._held, b""
        for pattern in self._patterns:
            content = content.replace(pattern, MASK)
        return content


def _overlap(content: bytes, pattern: bytes) -> int:
    """Return the length of the longest suffix of the content that is a prefix of the pattern."""
    start = max(0, len(content) - len(pattern) + 1)
    while (start := content.find(pattern[:1], start)) >= 0:
        if pattern.startswith(content[start:]):
            return len(content) - start
        start += 1
    return 0


def _parts(value: str) -> Set[str]:
    """Return a value and its lines.

    A pseudo-terminal ends lines with CR LF. Ansible shows the lines of an output one by one. A program may print one
    line of a key at a time, or turn the escapes of a JSON key into line breaks. A short line (such as a brace) is left
    out, because it occurs in every text.
    """
    lines = (line.strip() for text in (value, value.replace("\\n", "\n")) for line in text.splitlines())
    return {value, value.strip(), *(line for line in lines if len(line) >= _SHORTEST_LINE)}


def _written(part: str) -> Iterator[str]:
    """Yield a text in its quoted forms (JSON, Python, YAML, shell) and its escaped forms (URL, HTML, XML)."""
    once = [part, *_escaped(part)]
    yield from once
    # Twice: Ansible quotes as JSON the output of programs that print JSON.
    yield from (twice for form in once for twice in _escaped(form))
    for text in once[:2]:
        yield text.replace("/", "\\/")  # JSON as PHP writes it
        yield re.sub("[<>&]", lambda match: f"\\u{ord(match[0]):04x}", text)  # JSON as Go writes it
        yield from _marked_up(text)
    yield part.replace("'", "'\"'\"'")  # shell quotes
    yield part.replace("'", "''")  # YAML quotes
    yield from _url_quoted(part)


def _escaped(text: str) -> Iterator[str]:
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    yield repr(text)[1:-1]


def _marked_up(text: str) -> Iterator[str]:
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    for double, single in itertools.product(_DOUBLE_QUOTES, _SINGLE_QUOTES):
        yield text.replace('"', double).replace("'", single)


def _url_quoted(text: str) -> Iterator[str]:
    content = text.encode("utf-8", "surrogateescape").decode("latin-1")
    for safe in _URL_SAFE:
        unsafe = re.compile(f"[^A-Za-z0-9._~{re.escape(safe)}-]")
        for quote in (lambda match: f"%{ord(match[0]):02X}", lambda match: f"%{ord(match[0]):02x}"):
            quoted = unsafe.sub(quote, content)
            yield quoted
            yield quoted.replace("%20", "+")


def _base64(value: bytes) -> Iterator[str]:
    """Yield the parts of a value's base64 that do not depend on the bytes before and after the value.

    The value may begin at each of three positions in a group of four characters. The characters at its ends are left
    out, because they also depend on the bytes beside the value.
    """
    whole = binascii.b2a_base64(value, newline=False).decode()
    texts = [whole] if len(whole) >= _SHORTEST_PADDED else []
    for shift, first in enumerate((0, 2, 3)):
        text = binascii.b2a_base64(bytes(shift) + value, newline=False).decode()
        stable = text[first : (shift + len(value)) * 8 // 6]
        texts += [stable] if len(stable) >= _SHORTEST_BASE64 else []
    if len(value) > _LINE_BYTES:
        starts = range(0, len(whole), _LINE_BYTES * 4 // 3)
        lines = (whole[start : start + _LINE_BYTES * 4 // 3] for start in starts)
        texts += [line for line in lines if len(line) >= _SHORTEST_PADDED]
    for text in texts:
        yield text
        yield text.replace("+", "-").replace("/", "_")
