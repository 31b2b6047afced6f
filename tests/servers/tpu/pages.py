"""Pages of lists."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from tests.servers.tpu import refusals

_LIMIT: Final = 100

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A part of a list, and the token for the next part, or an empty text."""

    items: Sequence[T]
    next_page_token: str


def page(items: Sequence[T], size: int, token: str) -> Page[T]:
    """Return the page that a token names.

    Raises:
        ApiError: the token or size is invalid.
    """
    if size < 0:
        raise refusals.invalid_field("page_size", "must not be negative")
    try:
        start = int(base64.b64decode(token, altchars=b"-_", validate=True) or b"0")
    except (ValueError, binascii.Error):
        raise refusals.invalid_field("page_token", "is invalid") from None
    end = start + (min(size, _LIMIT) or _LIMIT)
    return Page(items[start:end], base64.urlsafe_b64encode(str(end).encode()).decode() if end < len(items) else "")
