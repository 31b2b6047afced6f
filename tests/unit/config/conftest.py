"""What the tests of the configuration share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolbox.config.configuration import Configuration, Request

Load = Callable[..., Configuration]


@pytest.fixture(autouse=True)
def _directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages name a file from the working directory on."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Load a configuration from its text: `load("a: 1", presets=["light"])`. It is `config.yaml` in messages."""

    def configuration(text: str, **request: Any) -> Configuration:
        file = tmp_path / "config.yaml"
        file.write_text(text, encoding="utf-8")
        return Configuration.load(Request(file, **request))

    return configuration
