"""Requirements for every forge that is found, also in a workspace."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolbox.ground.extensions import discovery, loading
from toolbox.ground.extensions.protocols import FORGES, Forge
from toolbox.ground.model.errors import ToolboxError
from toolbox.ground.model.forge_data import CiRun, CommentEvent
from toolbox.ground.system import environ

FOUND = discovery.available(FORGES.folder)
INSTANCES = {name: loading.instance(FORGES, extension) for name, extension in FOUND.items()}
NAMES = sorted(FOUND)
_CALLS: dict[str, Callable[[Forge], object]] = {
    "events": lambda forge: forge.events(),
    "run": lambda forge: forge.run(),
    "pull_requests": lambda forge: forge.pull_requests(),
}
FILES = {
    "an empty file": "",
    "no JSON": "$(touch pwned)",
    "another type": "[]",
    "a number": "7",
    "an empty object": "{}",
    "wrong types": json.dumps(dict.fromkeys(["action", "comment", "issue", "object_kind", "user", "type", "refs"], 7)),
    "a deep object": "[" * 100_000,
    "unusual numbers": '{"object_kind": "note", "comment": {"id": NaN}, "type": -1e999}',
}
HOSTILE = {
    "text": "'; touch pwned; $(touch pwned)\n::set-output name=revision::x",
    "control characters": "\x1b[31m\u202e\ud800",
    "a path": "../../etc/passwd",
    "a folder": "/",
    "a device": "/dev/zero",
    "an address": "https://attacker.example/api/v4",
    "an address without a host": "http://[/api/v4",
    "a large number": "9" * 400,
    "many characters": "x" * 300_000,
}


def forge(name: str) -> Forge:
    return INSTANCES[name]


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> dict[str, str | None]:
    """Return the value that each environment variable has: the value of the key `all`."""
    values: dict[str, str | None] = {"all": None}
    monkeypatch.setattr(environ, "get", lambda _name: values["all"])
    return values


each_forge = pytest.mark.parametrize("name", NAMES)
each_call = pytest.mark.parametrize("call", _CALLS.values(), ids=_CALLS)


def test_there_are_forges_to_test() -> None:
    assert len(NAMES) >= 5


@each_forge
def test_a_forge_is_documented(name: str) -> None:
    found: Any = forge(name)
    module = inspect.getmodule(type(found))
    assert (module or found).__doc__
    assert type(found).__doc__
    for member in FORGES.members:
        assert getattr(found, member).__doc__, member


@each_forge
def test_a_process_outside_of_jobs_is_in_no_job(name: str, variables: dict[str, str | None]) -> None:
    assert variables["all"] is None
    assert forge(name).is_current() is False


@each_forge
@each_call
def test_missing_variables_are_an_expected_error(
    name: str, call: Callable[[Forge], object], variables: dict[str, str | None]
) -> None:
    assert variables["all"] is None
    check(forge(name), call)


@each_forge
@each_call
@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
def test_hostile_variables_are_an_expected_error(
    name: str, call: Callable[[Forge], object], value: str, variables: dict[str, str | None]
) -> None:
    variables["all"] = value
    assert isinstance(forge(name).is_current(), bool)
    check(forge(name), call)


@each_forge
@each_call
@pytest.mark.parametrize("content", FILES.values(), ids=FILES)
def test_hostile_events_are_an_expected_error(
    name: str, call: Callable[[Forge], object], content: str, variables: dict[str, str | None], tmp_path: Path
) -> None:
    file = tmp_path / "event.json"
    file.write_text(content)
    for value in (str(file), content):
        variables["all"] = value
        check(forge(name), call)


@each_forge
@pytest.mark.parametrize("run", ["", "../7", "7; touch pwned", "x" * 300])
def test_an_id_that_is_not_of_a_run_cancels_nothing(name: str, run: str, variables: dict[str, str | None]) -> None:
    assert variables["all"] is None
    check(forge(name), lambda found: found.cancel(run))


def check(found: Forge, call: Callable[[Forge], object]) -> None:
    """Call a method, which may raise an expected error with a short message."""
    message, answer = "", None
    try:
        answer = call(found)
    except ToolboxError as error:
        message = str(error)
    assert answer is not True, "nothing can have been cancelled"
    assert len(message.splitlines()) <= 5
    assert max(map(len, message.splitlines()), default=0) < 1000
    assert "\x1b" not in message
    if isinstance(answer, CiRun):
        assert re.fullmatch(r"[\w.-]{1,200}", answer.id), "the marker of a comment contains the id"
    elif isinstance(answer, list | tuple):
        assert all(isinstance(each, CommentEvent) for each in answer)
