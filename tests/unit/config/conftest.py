"""Fixtures for the tests of the configuration."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolbox.config.configuration import Configuration, Request

Load = Callable[..., Configuration]


@pytest.fixture(autouse=True)
def _directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in `tmp_path`: messages name files relative to the working directory."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Return a function that loads a configuration from its text: `load("a: 1", presets=["light"])`.

    Messages name the file `config.yaml`.
    """

    def configuration(text: str, **request: Any) -> Configuration:
        file = tmp_path / "config.yaml"
        file.write_text(text, encoding="utf-8")
        return Configuration.load(Request(file, **request))

    return configuration
