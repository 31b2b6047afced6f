"""What the tests of the agent share: a process of its own, as the agent has on a target."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Script = Callable[..., str]
ROOT = Path(__file__).parents[3]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Run Python source in a process whose working directory is the test's, and return what it prints."""

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
