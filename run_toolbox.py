#!/usr/bin/env python3
"""The entry point of a checkout. It uses the checkout's own virtual environment when there is one."""

import os
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_VENV = _HERE / ".venv"
_PYTHON = _VENV / "bin" / "python"

if _PYTHON.exists() and Path(sys.prefix) != _VENV and "TOPGALLANT_NO_VENV" not in os.environ:
    os.execv(  # noqa: S606  # no shell has to read it
        _PYTHON, [str(_PYTHON), str(Path(__file__).resolve()), *sys.argv[1:]]
    )

sys.path[:0] = [str(_HERE)]

try:
    from toolbox.cli.main import main
except ModuleNotFoundError as error:
    sys.exit(f"error: the Python package {error.name} is not installed here: run `make setup` in {_HERE}")

sys.exit(main())
