"""The API of a repository on GitHub, kept in memory. Answers are set by path; requests are recorded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolbox.ground.model.errors import RefusedRequest


class FakeApi:
    """Answers GET requests from a mapping of paths.

    Args:
        answers: the answers by path. A path without an answer is refused, as GitHub does with 404.
    """

    repository = "owner/name"

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.answers = answers
        self.queries: dict[str, dict[str, str | int]] = {}
        self.sent: list[tuple[str, str, dict[str, Any]]] = []

    def of(self, repository: str) -> FakeApi:
        assert repository == self.repository
        return self

    def get(self, path: str, **query: str | int) -> Any:
        self.queries[path] = query
        if path not in self.answers:
            raise RefusedRequest(f"GitHub refused GET {path}: Not Found (HTTP 404)", 404)
        return self.answers[path]

    def items(self, path: str, **query: str | int) -> Iterator[Mapping[str, Any]]:
        yield from self.get(path, **query)

    def login(self) -> str:
        return "github-actions[bot]"

    def send(self, method: str, path: str, body: Mapping[str, object]) -> Any:
        self.sent.append((method, path, dict(body)))
        return {"number": 12}
