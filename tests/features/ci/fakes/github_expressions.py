"""Evaluates expressions of GitHub Actions, as far as the generated workflow files use them.

Names are paths into contexts. A missing property is null. Strings are compared without regard to case. The manual of
GitHub describes the language in "Evaluate expressions in workflows and actions".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

_TOKEN = re.compile(r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<name>[A-Za-z_][\w.-]*)|(?P<sign>&&|\|\||==|!=|[!(),]))")
_INSERTED = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)


def inserted(text: str, contexts: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]]) -> str:
    """Return a text with the values of its expressions."""
    return _INSERTED.sub(lambda match: as_text(evaluate(match[1], contexts, functions)), text)


def evaluate(text: str, contexts: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]]) -> Any:
    """Return the value of an expression."""
    parser = _Parser(text.strip(), contexts, functions)
    value = parser.alternatives()
    assert parser.at_end, f"not an expression: {text}"
    return value


def as_text(value: Any) -> str:
    """Return a value as GitHub inserts it into a text."""
    if value is None or isinstance(value, dict):
        return "" if value is None else "Object"
    return str(value).lower() if isinstance(value, bool) else str(value)


class _Parser:
    def __init__(self, text: str, contexts: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]]) -> None:
        self._tokens: list[str] = []
        position = 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            assert match, f"unknown token: {text[position:]!r}"
            self._tokens.append(match[0].strip())
            position = match.end()
        self._contexts = contexts
        self._functions: dict[str, Callable[..., Any]] = {"contains": _contains, "fromJSON": json.loads, **functions}

    @property
    def at_end(self) -> bool:
        return not self._tokens

    def alternatives(self) -> Any:
        value = self._conjunction()
        while self._accept("||"):
            other = self._conjunction()
            value = value or other
        return value

    def _conjunction(self) -> Any:
        value = self._comparison()
        while self._accept("&&"):
            other = self._comparison()
            value = value and other
        return value

    def _comparison(self) -> Any:
        value = self._operand()
        if self._accept("=="):
            return _equal(value, self._operand())
        if self._accept("!="):
            return not _equal(value, self._operand())
        return value

    def _operand(self) -> Any:
        token = self._tokens.pop(0)
        if token == "!":
            return not self._operand()
        if token == "(":
            value = self.alternatives()
            assert self._accept(")")
            return value
        if token.startswith("'"):
            return token[1:-1].replace("''", "'")
        if self._accept("("):
            return self._functions[token](*self._arguments())
        return self._property(token)

    def _arguments(self) -> list[Any]:
        values: list[Any] = []
        while not self._accept(")"):
            values.append(self.alternatives())
            self._accept(",")
        return values

    def _property(self, path: str) -> Any:
        first, *rest = path.split(".")
        assert first in self._contexts, f"unknown context {first}"
        value: Any = self._contexts[first]
        for key in rest:
            value = value.get(key) if isinstance(value, Mapping) else None
        return value

    def _accept(self, sign: str) -> bool:
        if self._tokens[:1] != [sign]:
            return False
        self._tokens.pop(0)
        return True


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, str) and isinstance(right, str):
        return left.lower() == right.lower()
    return bool((left or "") == (right or ""))  # null is equal to an empty string


def _contains(search: Any, item: Any) -> bool:
    if isinstance(search, list):
        return any(_equal(value, item) for value in search)
    return as_text(item).lower() in as_text(search).lower()
