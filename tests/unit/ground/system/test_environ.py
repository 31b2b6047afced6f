"""The environment variables of this process are read and never written."""

import os
from pathlib import Path

import pytest

from toolbox.ground.model.errors import UsageError
from toolbox.ground.system import environ


@pytest.mark.parametrize("value", [None, ""])
def test_an_unset_or_empty_variable_is_none(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.delenv("GALLEON", raising=False)
    if value is not None:
        monkeypatch.setenv("GALLEON", value)
    assert environ.get("GALLEON") is None
    assert environ.get_path("GALLEON") is None


def test_a_path_may_begin_with_the_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("GALLEON", "~/runs")
    assert environ.get_path("GALLEON") == Path("/home/somebody/runs")


def test_a_change_to_everything_does_not_reach_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GALLEON", "a = b")
    variables = environ.everything()
    assert variables["GALLEON"] == "a = b"
    variables["GALLEON"] = "another"
    assert os.environ["GALLEON"] == "a = b"


def test_an_unknown_home_directory_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GALLEON", "~no-such-user/runs")
    with pytest.raises(UsageError, match=r"~no-such-user/runs: the home directory is unknown: set \$HOME"):
        environ.get_path("GALLEON")
    monkeypatch.setenv("HOME", "")
    with pytest.raises(UsageError, match="this user has no home directory"):
        environ.home()


def test_a_user_that_the_system_does_not_know_has_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_001)
    with pytest.raises(UsageError, match="this user has no home directory"):
        environ.home()


@pytest.mark.parametrize(("named", "expected"), [("/state", "/state"), ("state", "/home/me/.local/state")])
def test_a_relative_state_directory_is_ignored(monkeypatch: pytest.MonkeyPatch, named: str, expected: str) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("XDG_STATE_HOME", named)
    assert environ.state_directory() == Path(expected) / "topgallant"
