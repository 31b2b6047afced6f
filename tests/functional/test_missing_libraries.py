"""A missing client library is reported before anything starts, with the command that installs the library."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from toolbox.ground.system import places
from toolbox.testing import Workspace

STORE = "results: {database: postgresql://nowhere.invalid/db}\n"


@pytest.fixture
def without(tmp_path: Path) -> dict[str, str]:
    """Return the environment variables with which Python cannot import the optional libraries."""
    hidden = (
        "import sys\nsys.modules.update(dict.fromkeys(['kubernetes', 'psycopg', 'google.cloud.tpu_v2', 'httpx']))\n"
    )
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden/sitecustomize.py").write_text(hidden)
    return {"PYTHONPATH": str(tmp_path / "hidden")}


def refuse_run(small: Workspace, without: dict[str, str], config: str, what: str, extra: str) -> None:
    """Check that a run with this configuration is refused because `extra` is not installed, and starts nothing."""
    small.write({"config/small.yaml": config})
    outcome = small.run("project", "run", "small", env=without)
    assert outcome.exit_code == 2, str(outcome)
    assert what in outcome.stderr
    assert not (small.directory / "made").exists()
    assert small.runs() == []
    hint = outcome.stderr.rpartition(": ")[2]
    assert shlex.split(hint)[:4] == [sys.executable, "-m", "pip", "install"]
    assert f"{places.builtin_root()}[{extra}]" in hint


def test_a_run_whose_library_is_missing_starts_nothing(small: Workspace, without: dict[str, str]) -> None:
    refuse_run(small, without, STORE, "the database of `results` needs psycopg", "postgres")


def refuse_flag(small: Workspace, without: dict[str, str], command: list[str], fault: str) -> None:
    """Check that the fault of a command line is named, and not the missing library."""
    outcome = small.run(*command, env=without)
    assert outcome.exit_code == 2, str(outcome)
    assert fault in outcome.stderr
    assert "not installed" not in outcome.stderr


def test_a_wrong_flag_is_named_before_a_missing_library(small: Workspace, without: dict[str, str]) -> None:
    command = ["results", "list", "--since=nope", "--database=postgresql://x/y"]
    refuse_flag(small, without, command, "--since=nope is not a time")


def test_commands_that_need_no_extra_library_run(small: Workspace, without: dict[str, str]) -> None:
    assert small.run("project", "run", "small", env=without).exit_code == 0
