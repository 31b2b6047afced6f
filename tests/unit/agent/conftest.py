"""A fixture for the tests of the agent: Python source runs in a separate process, as the agent does on a target."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Script = Callable[..., str]
ROOT = Path(__file__).parents[3]


@pytest.fixture
def script(tmp_path: Path) -> Script:
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
