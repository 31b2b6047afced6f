"""Finds the lines of Markdown that a forge does not show, such as those in `<!-- -->`: they contain no commands.

In doubt a line is hidden. What readers do not see must not start or change a run, and the templates of pull requests
have examples of commands in HTML comments. The rules are those of CommonMark ("HTML blocks", "Raw HTML"), and of the
HTML that is made from it: there, a comment that its block does not close hides everything after it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum, auto
from typing import Final

_OPENING = re.compile(r"<!--|<\?|<!\[CDATA\[|<![A-Za-z]")
_CLOSINGS: Final = {"<!--": "-->", "<?": "?>", "<![CDATA[": "]]>"}
_DECLARATION_END: Final = ">"
_CONTAINERS: Final = r"(?P<containers>[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t>]+)*)"  # lists and quotations
_BLOCK = re.compile(_CONTAINERS + f"(?:{_OPENING.pattern})")
_TAG = re.compile(_CONTAINERS + "</?[A-Za-z]")
_PLAIN = re.compile(" {0,3}")
_FENCE_LINE = re.compile(" {0,3}(?:```|~~~)")


class _Kind(Enum):
    """What hides the next lines: text in a paragraph, a block, a block in a list or quotation, or lost HTML."""

    NOTHING = auto()
    INLINE = auto()
    BLOCK = auto()
    NESTED = auto()
    EVERYTHING = auto()


def opening_in(text: str) -> str | None:
    """Return the first text, such as `<!--`, after which a forge hides text; None if there is none."""
    match = _OPENING.search(text)
    return match[0] if match else None


class HiddenText:
    """Tells for the lines of a text, one after the other, whether a forge hides them.

    `is_html` tells whether the last line may be part of a block of HTML, which a blank line ends.
    """

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._kind = _Kind.NOTHING
        self._closing = ""
        self.is_html = False
        self._absent: dict[str, int] = {}  # the line up to which a closing text does not occur

    def hides(self, index: int) -> bool:
        """Return whether the beginning of a line is hidden. Call this in order, except for lines in fenced blocks."""
        line = self._lines[index]
        is_hidden, is_block, position = self._kind is not _Kind.NOTHING, False, 0
        self.is_html = bool(line.strip()) and (self.is_html or _TAG.match(line) is not None)
        if self._kind is _Kind.NESTED and line.strip() and line[0] not in " \t>":
            self._kind = _Kind.EVERYTHING  # the block has ended, but not the HTML comment
        if self._kind is _Kind.EVERYTHING:
            return True
        if is_hidden:
            position = line.find(self._closing)
            if position < 0:
                return True
            position += len(self._closing)
            is_block, self._kind = self._kind is not _Kind.INLINE, _Kind.NOTHING
        self._read_openings(index, position, has_ended_block=is_block)
        return is_hidden

    def _read_openings(self, index: int, position: int, *, has_ended_block: bool) -> None:
        """Find what the rest of a line opens and does not close."""
        line = self._lines[index]
        block = _BLOCK.match(line) if position == 0 else None
        while match := _OPENING.search(line, position):
            closing = _CLOSINGS.get(match[0], _DECLARATION_END)
            end = line.find(closing, match.start() + 1)  # `<!-->` is complete
            if end < 0:
                self._kind, self._closing = self._kind_of(index, closing, block, has_ended_block), closing
                return
            position = end + len(closing)
            has_ended_block, block = has_ended_block or block is not None, None

    def _kind_of(self, index: int, closing: str, block: re.Match[str] | None, has_ended_block: bool) -> _Kind:
        if has_ended_block:
            return _Kind.EVERYTHING
        if block is not None and not self.is_html:
            return _Kind.BLOCK if _PLAIN.fullmatch(block["containers"]) else _Kind.NESTED
        if self._closes_in_paragraph(index + 1, closing):
            return _Kind.INLINE
        return _Kind.EVERYTHING if self.is_html else _Kind.NOTHING

    def _closes_in_paragraph(self, begin: int, closing: str) -> bool:
        """Return whether a closing text is before the next blank line or fence. Each line is searched once."""
        if begin < self._absent.get(closing, 0):
            return False
        for index in range(begin, len(self._lines)):
            line = self._lines[index]
            if not line.strip() or _FENCE_LINE.match(line):
                self._absent[closing] = index
                return False
            if closing in line:
                return True
        self._absent[closing] = len(self._lines)
        return False
