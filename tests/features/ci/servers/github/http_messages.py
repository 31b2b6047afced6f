"""Requests and answers of HTTP, as they are received and sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request as it came. The names of the headers are in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def path(self) -> str:
        """The path as it was sent, without the query."""
        return urlsplit(self.target).path

    @property
    def query(self) -> Mapping[str, str]:
        """The parameters of the query."""
        return dict(parse_qsl(urlsplit(self.target).query))


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer as it is sent."""

    status: int
    headers: Mapping[str, str]
    body: bytes
