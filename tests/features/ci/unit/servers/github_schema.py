"""Compares answers and events of the test server with GitHub's published schema.

githubkit generates its client from https://github.com/github/rest-api-description. The client's source tells which
model belongs to each endpoint and status.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

from githubkit.compat import type_validate_python
from githubkit_schemas.v2022_11_28 import models
from pydantic import BaseModel

from tests.features.ci.servers.github.api import Recorded

_PACKAGE: Final = "githubkit_schemas.v2022_11_28"
_CATEGORIES: Final = ("actions", "checks", "git", "issues", "pulls", "reactions", "repos", "teams", "users")
_REQUEST: Final = re.compile(
    r'url = f?"(?P<url>[^"]+)"(?:(?!url = ).)*?'
    r'self\._github\.request\(\s*"(?P<method>[A-Z]+)",(?P<rest>.*?)\n        \)',
    re.DOTALL,
)
_ANSWER: Final = re.compile(r"response_model=(.+?),\n        (?:    error_models|\))", re.DOTALL)
_ERROR: Final = re.compile(r'"(\d{3})": (\w+),')
_UNSTEADY: Final = re.compile(r"labels\[\d+\]\.archived_(at|by)$|^\.status$")
"""Fields that GitHub sends, and that only some of the published models of labels and errors have."""
_ALIASES: Final = {("GET", "/repos/{}/{}/statuses/{}"): "/repos/{}/{}/commits/{}/statuses"}
_UNPROCESSABLE: Final = 422
_FIRST_ERROR: Final = 400
_NO_CONTENT: Final = 204


class _Models(dict[str, Any]):
    def __missing__(self, name: str) -> Any:
        return getattr(models, name)


@cache
def _requests() -> Mapping[tuple[str, str], str]:
    """Return the source of all requests of the client, by method and path without the names of parameters."""
    found = {}
    for category in _CATEGORIES:
        source = inspect.getsource(importlib.import_module(f"{_PACKAGE}.rest.{category}"))
        for match in _REQUEST.finditer(source):
            found[match["method"], _nameless(match["url"])] = f"{match['rest']}\n        )"
    return found


def _nameless(path: str) -> str:
    return re.sub(r"\{\w+\}", "{}", path)


def _model(recorded: Recorded) -> Any:
    path = _nameless(recorded.endpoint)
    source = _requests()[recorded.method, _ALIASES.get((recorded.method, path), path)]
    if recorded.status >= _FIRST_ERROR:
        errors = dict(_ERROR.findall(source))
        usual = "ValidationError" if recorded.status == _UNPROCESSABLE and "errors" in recorded.answer else "BasicError"
        return getattr(models, errors.get(str(recorded.status), usual))
    match = _ANSWER.search(source)
    assert match is not None, source
    return eval(match[1], {}, _Models(list=list, Union=importlib.import_module("typing").Union))


def check(recorded: Recorded) -> None:
    """Check that an answer conforms to the schema of its endpoint, and has no field that the schema does not know."""
    if recorded.status == _NO_CONTENT:
        assert recorded.answer is None
    else:
        check_value(_model(recorded), recorded.answer)


def check_value(model: Any, value: Any) -> None:
    """Check that a value conforms to a model, and has no other fields."""
    parsed = type_validate_python(model, value)
    unknown = [path for path in _unknown(value, _plain(parsed)) if not _UNSTEADY.search(path)]
    assert unknown == []


def check_event(name: str, payload: Mapping[str, Any]) -> None:
    """Check that the payload of an event conforms to the schema of its webhook."""
    check_value(importlib.import_module(f"{_PACKAGE}.webhooks.{name}").Event, payload)


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(by_alias=True, exclude_unset=True)
    return [_plain(one) for one in value] if isinstance(value, list) else value


def _unknown(value: Any, parsed: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of the fields that a parsed value lacks."""
    if isinstance(value, Mapping) and isinstance(parsed, Mapping):
        for name, one in value.items():
            if name in parsed:
                yield from _unknown(one, parsed[name], f"{path}.{name}")
            else:
                yield f"{path}.{name}"
    if isinstance(value, Sequence) and isinstance(parsed, list):
        for index, (one, other) in enumerate(zip(value, parsed, strict=True)):
            yield from _unknown(one, other, f"{path}[{index}]")
