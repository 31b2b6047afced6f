"""Compares the time of `./run_toolbox.py host --help` with `python -c "import fire"`, with the same interpreter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from measure import compare

_ENTRY = Path(__file__).resolve().parent.parent / "run_toolbox.py"


def _run(*args: str) -> None:
    subprocess.run([sys.executable, *args], check=True, capture_output=True)


def main() -> int:
    """Measure, and return 1 if the limit is exceeded."""
    title = "./run_toolbox.py host --help / python -c 'import fire'"
    within = compare(
        title, lambda: _run(str(_ENTRY), "host", "--help"), lambda: _run("-c", "import fire"), rounds=25, limit=1.2
    )
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
