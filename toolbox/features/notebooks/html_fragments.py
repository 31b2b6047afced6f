"""Cleans untrusted HTML, such as an output of a notebook, so that a page can contain it safely.

nh3 parses the HTML as a browser does, and keeps only elements and attributes of fixed lists. The result contains no
script, style, form, frame or inline drawing, all its elements are closed, and it cannot make a browser send a request.
Images remain only if their data is part of the HTML. Ids get a prefix, so that they differ from the ids of a page.
"""

from __future__ import annotations

import html
import re
from functools import cache
from typing import TYPE_CHECKING, Final

from toolbox.ground.model.foreign_text import clean, replace_unsafe

if TYPE_CHECKING:
    from nh3 import Cleaner

_ELEMENTS: Final = (
    "a abbr b blockquote br caption code dd del details div dl dt em h1 h2 h3 h4 h5 h6 hr i img ins kbd li mark ol p "
    "pre q s samp small span strong sub summary sup table tbody td tfoot th thead tr tt u ul var"
)
# Elements that are removed with everything in them.
_REMOVED: Final = (
    "applet audio canvas head iframe map math noembed noframes noscript object script select style svg template "
    "textarea title video xmp"
)
_ATTRIBUTES: Final = {
    "*": {"class", "id", "title"},
    "a": {"href"},
    "img": {"src", "alt", "width", "height"},
    "td": {"colspan", "rowspan"},
    "th": {"colspan", "rowspan"},
    "ol": {"start"},
}
_SCHEMES: Final = {"http", "https", "mailto", "data"}
_CLASS: Final = re.compile(
    r"[a-z][a-z0-9]{0,2}|highlight|hl-[a-z0-9]{1,20}|ansi-[a-z-]{1,40}|dataframe|cell|code_cell|text_cell|input|inner_cell|"
    r"input_area|prompt|input_prompt|output|output_[a-z_]{1,30}|text_cell_render|rendered_html"
)
_LINK: Final = re.compile(r"(?:https?://|mailto:)[^\s\x00-\x20]+", re.IGNORECASE)
_IMAGE: Final = re.compile(r"data:image/(?:png|jpeg|gif|webp|svg\+xml);base64,[A-Za-z0-9+/=\s]+")
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,3}")
_ID: Final = re.compile(r"[\w.-]{1,100}")
_PREFIX: Final = "nb-"
_LONGEST_VALUE: Final = 2000  # characters of an attribute
# In the result of nh3, each value has double quotes, and contains neither such quotes nor `<`.
_IMAGE_ELEMENT: Final = re.compile(r'<img((?: [a-z]+="[^"]*")*)>')
_ALTERNATIVE: Final = re.compile(r' alt="([^"]*)"')


def cleaned(text: str) -> str:
    """Return the allowed parts of an HTML text."""
    # Escape sequences are removed first: in the result, they could contain parts of elements.
    return _IMAGE_ELEMENT.sub(_image, replace_unsafe(_cleaner().clean(clean(text))))


def is_blank(text: str) -> bool:
    """Return whether a page would show nothing of a cleaned text."""
    import nh3

    return "<img" not in text and not html.unescape(nh3.clean(text, tags=set())).strip()


@cache
def _cleaner() -> Cleaner:
    import nh3

    return nh3.Cleaner(
        tags=set(_ELEMENTS.split()),
        clean_content_tags=set(_REMOVED.split()),
        attributes=_ATTRIBUTES,
        attribute_filter=_attribute,
        url_schemes=_SCHEMES,
    )


def _attribute(tag: str, name: str, value: str) -> str | None:
    """Return the new value of an attribute; None if it is removed."""
    if len(value) > _LONGEST_VALUE and (tag, name) != ("img", "src"):
        return None
    match name:
        case "class":
            return " ".join(each for each in value.split() if _CLASS.fullmatch(each)) or None
        case "id":
            return f"{_PREFIX}{value.removeprefix(_PREFIX)}" if _ID.fullmatch(value) else None
        case "href":
            return _address(value.strip())
        case "src":
            return value if _IMAGE.fullmatch(value) else None
        case "width" | "height" | "colspan" | "rowspan" | "start":
            return value if _NUMBER.fullmatch(value) else None
    return value


def _address(value: str) -> str | None:
    if value.startswith("#") and _ID.fullmatch(value[1:]):
        return f"#{_PREFIX}{value[1:].removeprefix(_PREFIX)}"
    return value if _LINK.fullmatch(value) else None


def _image(element: re.Match[str]) -> str:
    """Return an image, or its alternative text if it has no data."""
    if ' src="' in element[1]:
        return element[0]
    alternative = _ALTERNATIVE.search(element[1])
    text = html.unescape(alternative[1]) if alternative is not None else ""
    return html.escape(f"[image {text[:200]}".rstrip() + "]")
