"""Fixtures for the tests of `toolbox.ground.system`."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Script = Callable[..., subprocess.CompletedProcess[str]]
ROOT = Path(__file__).parents[4]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Return a function that runs Python source in a process in `tmp_path`."""

    def run(source: str) -> subprocess.CompletedProcess[str]:
        preamble = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        return subprocess.run(
            [sys.executable, "-c", preamble + source],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    return run
