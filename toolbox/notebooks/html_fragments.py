"""Cleans untrusted HTML, such as an output of a notebook, so that a page can contain it safely.

Only elements and attributes of fixed lists remain. The result is made from the parsed elements. It contains no script,
style, form, frame or inline drawing, all its elements are closed, and it cannot make a browser send a request. Images
remain only if their data is part of the HTML. Ids get a prefix, so that they differ from the ids of a page.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from typing import Final

from toolbox.model.foreign_text import clean

_ELEMENTS: Final = re.compile(
    "a|abbr|b|blockquote|br|caption|code|dd|del|details|div|dl|dt|em|h[1-6]|hr|i|img|ins|kbd|li|mark|ol|p|pre|q|s|samp|"
    "small|span|strong|sub|summary|sup|table|tbody|td|tfoot|th|thead|tr|tt|u|ul|var"
)
_WITHOUT_CONTENT: Final = frozenset({"br", "hr", "img"})
# Elements that are removed with everything in them.
_REMOVED: Final = re.compile(
    "applet|audio|canvas|head|iframe|map|math|noembed|noframes|noscript|object|script|select|style|svg|template|"
    "textarea|title|video|xmp"
)
_CLASS: Final = re.compile(
    r"[a-z][a-z0-9]{0,2}|highlight|hl-[a-z0-9]{1,20}|ansi-[a-z-]{1,40}|dataframe|cell|code_cell|text_cell|input|inner_cell|"
    r"input_area|prompt|input_prompt|output|output_[a-z_]{1,30}|text_cell_render|rendered_html"
)
_LINK: Final = re.compile(r"(?:https?://|mailto:)[^\s\x00-\x20]+", re.IGNORECASE)
_IMAGE: Final = re.compile(r"data:image/(?:png|jpeg|gif|webp|svg\+xml);base64,[A-Za-z0-9+/=\s]+")
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,3}")
_ID: Final = re.compile(r"[\w.-]{1,100}")
_PREFIX: Final = "nb-"
_DEEPEST: Final = 100  # elements
_LONGEST_VALUE: Final = 2000  # characters of an attribute


def cleaned(text: str) -> str:
    """Return the allowed parts of an HTML text. Text that cannot be parsed is shown as it is."""
    parser = _Cleaner()
    try:
        parser.feed(text)
        parser.close()
    except (AssertionError, ValueError):  # older versions of `html.parser` raise for some declarations
        return f"<pre>{html.escape(clean(text))}</pre>"
    return parser.text()


def is_blank(text: str) -> bool:
    """Return whether a page would show nothing of a cleaned text."""
    return "<img" not in text and not re.sub(r"<[^>]*>", "", text).strip()


class _Cleaner(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._parts: list[str] = []
        self._open: list[str] = []
        self._removed: list[str] = []

    def text(self) -> str:
        """Return the cleaned text, in which all elements are closed."""
        return "".join([*self._parts, *(f"</{tag}>" for tag in reversed(self._open))])

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        is_removed = bool(_REMOVED.fullmatch(tag))
        if self._removed or is_removed:
            if is_removed and len(self._removed) < _DEEPEST:
                self._removed.append(tag)
            return
        if not _ELEMENTS.fullmatch(tag) or len(self._open) >= _DEEPEST:
            return
        values: dict[str, str] = {}
        for name, value in attrs:
            values.setdefault(name, value or "")  # if an attribute is repeated, the first value counts
        if tag == "img" and not _IMAGE.fullmatch(values.get("src", "")):
            self._parts.append(html.escape(f"[image {clean(values.get('alt', ''))[:200]}".rstrip() + "]"))
            return
        kept = "".join(f' {name}="{html.escape(clean(value))}"' for name, value in _attributes(tag, values).items())
        self._parts.append(f"<{tag}{kept}>")
        if tag not in _WITHOUT_CONTENT:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        if not _REMOVED.fullmatch(tag):
            self.handle_starttag(tag, attrs)
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._removed:
            if tag in self._removed:
                del self._removed[len(self._removed) - 1 - self._removed[::-1].index(tag) :]
            return
        if tag in self._open:
            while True:
                last = self._open.pop()
                self._parts.append(f"</{last}>")
                if last == tag:
                    break

    def handle_data(self, data: str) -> None:
        if not self._removed:
            self._parts.append(html.escape(clean(data), quote=False))


def _attributes(tag: str, values: Mapping[str, str]) -> dict[str, str]:
    kept = {}
    for name, value in values.items():
        if len(value) > _LONGEST_VALUE and (tag, name) != ("img", "src"):
            continue
        if (new := _attribute(tag, name, value)) is not None:
            kept[name] = new
    if kept.get("href", "#")[0] != "#":
        kept["rel"] = "noopener noreferrer"
    return kept


def _attribute(tag: str, name: str, value: str) -> str | None:
    """Return the new value of an attribute; None if it is removed."""
    match tag, name:
        case _, "class":
            return " ".join(each for each in value.split() if _CLASS.fullmatch(each)) or None
        case _, "id":
            return f"{_PREFIX}{value.removeprefix(_PREFIX)}" if _ID.fullmatch(value) else None
        case _, "title":
            return value
        case "a", "href":
            return _address(value.strip())
        case "img", "src" | "alt":
            return value
        case ("img", "width" | "height") | ("td" | "th", "colspan" | "rowspan") | ("ol", "start"):
            return value if _NUMBER.fullmatch(value) else None
    return None


def _address(value: str) -> str | None:
    if value.startswith("#") and _ID.fullmatch(value[1:]):
        return f"#{_PREFIX}{value[1:].removeprefix(_PREFIX)}"
    return value if _LINK.fullmatch(value) else None
