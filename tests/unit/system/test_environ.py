"""The environment variables of this process: read, never written."""

import os
from pathlib import Path

import pytest

from toolbox.system import environ


@pytest.mark.parametrize("value", [None, ""])
def test_a_variable_that_is_not_set_or_empty_is_none(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
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
