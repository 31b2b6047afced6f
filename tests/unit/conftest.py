"""The fixture of Python in a process, which the unit tests of several packages use."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Script = Callable[..., str]
ROOT = Path(__file__).parents[2]


@pytest.fixture(name="script")
def _script(tmp_path: Path) -> Script:
    """Return a function that runs Python source in a process in `tmp_path`, and returns the output."""

    def run(source: str, *args: str, env: dict[str, str] | None = None) -> str:
        preamble = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        return subprocess.run(
            [sys.executable, "-c", preamble + source, *args],
            cwd=tmp_path,
            env=env,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=60,
        ).stdout

    return run
