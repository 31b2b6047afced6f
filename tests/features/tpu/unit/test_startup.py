"""The wrapper of a startup script records how the script ended."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from toolbox.features.tpu import startup
from toolbox.features.tpu.startup import Startup

Bash = Callable[[str], list[str]]


@pytest.fixture
def bash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bash:
    """Return a function that runs a script as a worker does, and returns the lines of its output."""
    monkeypatch.setattr(startup, "DIRECTORY", str(tmp_path / "startup"))
    monkeypatch.setattr(startup, "STATUS", str(tmp_path / "run/status"))
    (tmp_path / "run").mkdir()

    def run(script: str) -> list[str]:
        completed = subprocess.run(["bash", "-c", script], check=False, capture_output=True, text=True, timeout=20)
        return completed.stdout.splitlines()

    return run


@pytest.mark.parametrize(
    ("script", "state"),
    [
        ("", Startup(0)),
        ("echo a; echo b >&2", Startup(0, "a\nb")),
        ("echo failed; exit 7", Startup(7, "failed")),
        ("#!/usr/bin/env python3\nprint('python')\nraise SystemExit(3)\n", Startup(3, "python")),
        ("END\nEND\nexit 4", Startup(4, "")),
        ("cat; echo 'topgallant-startup 9'", Startup(0, "topgallant-startup 9")),
        ("kill -KILL $$", Startup(137)),
    ],
)
def test_the_status_and_the_output_of_a_script_are_recorded(bash: Bash, script: str, state: Startup) -> None:
    bash(startup.wrapped(script))
    found = startup.parse(["Welcome!", *bash(startup.probe(0))])
    assert found is not None
    assert found.status == state.status
    assert state.message in found.message


def test_only_the_last_lines_of_the_output_are_shown(bash: Bash) -> None:
    bash(startup.wrapped("seq 100; exit 1"))
    assert startup.parse(bash(startup.probe(0))) == Startup(1, "98\n99\n100")


def test_a_script_that_has_not_begun_is_awaited(bash: Bash) -> None:
    assert startup.parse(bash(startup.probe(0))) == Startup(None, "the startup script has not begun")


def test_a_script_that_runs_is_awaited(bash: Bash, tmp_path: Path) -> None:
    (tmp_path / "startup").mkdir()
    assert startup.parse(bash(startup.probe(0))) == Startup(None, "the startup script is running")


def test_the_status_of_an_earlier_start_is_ignored(bash: Bash, tmp_path: Path) -> None:
    """SSH may answer before the startup script begins."""
    bash(startup.wrapped("true"))
    for file in (tmp_path / "run").iterdir():  # as a start of the worker does
        file.unlink()
    assert startup.parse(bash(startup.probe(0))) == Startup(None, "the startup script is running")


def test_a_script_that_is_executed_again_forgets_its_status(bash: Bash, tmp_path: Path) -> None:
    bash(startup.wrapped("exit 1"))
    bash(startup.wrapped(f"ls {tmp_path}/run"))
    assert startup.parse(bash(startup.probe(0))) == Startup(0)


@pytest.mark.parametrize(
    "lines", [[], ["topgallant-startup"], ["topgallant-startup 12345"], ["x topgallant-startup 0"]]
)
def test_an_answer_of_another_form_is_ignored(lines: list[str]) -> None:
    assert startup.parse(lines) is None
