"""Masks secret values in texts and byte streams, in every form in which programs print them.

A form is a secret value in one encoding, such as base64. The orchestrator uses this module for all files of a run, and
the agent uses it for the logs of a workload. Searching for each form in turn is faster than a regular expression.
"""

from __future__ import annotations

import binascii
import itertools
import json
import re
from typing import AnyStr, Iterable, Iterator, List, Sequence, Set

MASK = b"***"
# Values of one or two characters occur in every text. Masking them would make the text unreadable.
_SHORTEST = 3
_SHORTEST_LINE = 6
# A shorter piece of base64 may occur by chance.
_SHORTEST_BASE64 = 6
_SHORTEST_PADDED = 8
# Programs that print base64 in lines use lines of 76 characters (RFC 2045), which encode 57 bytes.
_LINE_BYTES = 57
# The characters, besides letters, digits and `-._~`, that are not escaped in a URL by Python's `quote` with `safe=""`,
# by `quote` with its default, by JavaScript's `encodeURIComponent` and `encodeURI`, and by HTML forms.
_UNQUOTED = re.compile(r"[^A-Za-z0-9_@%+=:,./-]")
_IN_DOUBLE_QUOTES = re.compile(r'["$`\\]')
_URL_SAFE = ("", "/", "!'()*", ";,/?:@&=+$!'()*#", "*")
_DOUBLE_QUOTES = ('"', "&quot;", "&#34;")
_SINGLE_QUOTES = ("'", "&#x27;", "&#39;", "&apos;")


def forms(value: str) -> Set[str]:
    """Return the forms of a secret value. Forms of fewer than three characters are left out."""
    candidates = {form for part in _parts(value) for form in _encoded(part)}
    candidates.update(_base64(value.strip().encode("utf-8", "surrogateescape")))
    return {form for form in candidates if len(form) >= _SHORTEST}


def patterns(values: Iterable[str]) -> List[bytes]:
    """Return the forms of secret values as bytes, longest first, because a form may be a part of another form."""
    encoded = {form.encode("utf-8", "surrogateescape") for value in values for form in forms(value)}
    return sorted(encoded, key=len, reverse=True)


class Masker:
    """Masks secrets in a stream that arrives in pieces. The end of a piece that may begin a secret is held back.

    Args:
        patterns: the forms to mask, longest first.
    """

    def __init__(self, patterns: Sequence[bytes]) -> None:
        self._patterns = patterns
        self._held = b""

    def feed(self, content: bytes) -> bytes:
        """Add a piece of the stream, and return the masked bytes that are ready to be written."""
        if not self._patterns:
            return content
        content, self._held = self._held + content, b""
        for pattern in self._patterns:
            *before, rest = content.split(pattern)
            # The end of the content may begin this form. Hold it back before a shorter form could match inside of it.
            if held := overlap(rest, pattern):
                rest, self._held = rest[:-held], rest[-held:] + self._held
            content = MASK.join([*before, rest])
        return content

    def flush(self) -> bytes:
        """Return the masked form of the bytes that were held back. Call this method at the end of the stream."""
        content, self._held = self._held, b""
        for pattern in self._patterns:
            content = content.replace(pattern, MASK)
        return content


def overlap(content: AnyStr, pattern: AnyStr) -> int:
    """Return the length of the longest suffix of the content that is a prefix of the pattern, but not all of it."""
    start = max(0, len(content) - len(pattern) + 1)
    while (start := content.find(pattern[:1], start)) >= 0:
        if pattern.startswith(content[start:]):
            return len(content) - start
        start += 1
    return 0


def _parts(value: str) -> Set[str]:
    """Return the parts of a value that are masked separately: the value and its lines.

    Programs and Ansible may print the lines of a key separately, and a pseudo-terminal ends lines with CR LF. A program
    may also print the escaped line breaks of a JSON key as line breaks. Short lines (such as a brace) are left out,
    because they occur in every text.
    """
    lines = (line.strip() for text in (value, value.replace("\\n", "\n")) for line in text.splitlines())
    return {value, value.strip(), *(line for line in lines if len(line) >= _SHORTEST_LINE)}


def _encoded(part: str) -> Iterator[str]:
    """Yield `part` as it is written in JSON, Python, YAML, a shell command, a URL, HTML and XML."""
    simple_forms = [part, *_escaped(part)]
    yield from simple_forms
    # If a program prints JSON, Ansible escapes this output as JSON once more.
    yield from (nested_form for form in simple_forms for nested_form in _escaped(form))
    for text in simple_forms[:2]:
        yield text.replace("/", "\\/")  # JSON by PHP
        yield re.sub("[<>&]", lambda match: f"\\u{ord(match[0]):04x}", text)  # JSON by Go
        yield from _marked_up(text)
    yield part.replace("'", "'\"'\"'")  # shell
    yield part.replace("'", "'\\''")
    yield _UNQUOTED.sub(r"\\\g<0>", part)  # `printf %q`
    yield _IN_DOUBLE_QUOTES.sub(r"\\\g<0>", part)  # `declare -p`
    yield part.replace("'", "''")  # YAML
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
    """Yield the base64 of a value: whole, split into lines of 76 characters, and as a part of longer data.

    Base64 encodes three bytes as four characters, so the value inside of longer data has three different encodings. The
    first and last characters of each encoding are left out if they depend on the bytes before and after the value.
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
