"""Runs the checks of the project notebooks as the worker does, with fake programs where a test needs them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.features.notebooks.fakes.check_place import CheckPlace
from toolbox.features.notebooks.worker import check_execution
from toolbox.features.notebooks.worker.notebook_results import TestResult
from toolbox.features.notebooks.worker.notebook_settings import CheckSettings
from toolbox.ground.system import places

CHECKS = places.builtin_root() / "projects/notebooks/checks"

RunCheck = Callable[..., list[TestResult]]


@pytest.fixture(name="run_check")
def _run_check() -> RunCheck:
    """A function that runs a check by the name of its file, with promises."""

    def run(file: str, **promises: Any) -> list[TestResult]:
        settings = CheckSettings(Path(file).stem, file, 120)
        return check_execution.run(settings, CHECKS, promises, CheckPlace())

    return run


@pytest.fixture(name="program")
def _program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """A function that puts a shell script before the programs of the machine."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    def write(name: str, script: str) -> None:
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)

    return write
