"""Runs programs beside a kernel of a Jupyter server. `server_helper.py` sends this module to a kernel.

The outputs of a program go to files, and the worker reads the files in pieces. A Jupyter server would drop outputs of a
kernel that arrive too fast. The module imports only the standard library and the kit, and runs with Python 3.8.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from toolbox.ground.kit import process_tree
from toolbox.ground.kit.own_cgroups import OomCounter

_LOOK_SECONDS = 0.05
_PIECE = 2 << 20
_HIDDEN = ("JUPYTERHUB_API_TOKEN", "JPY_API_TOKEN", "JUPYTERHUB_CLIENT_ID", "JPY_PARENT_PID")


def run(
    command: list[str], source: str, variables: dict[str, str], timeout: float, output_bytes: int
) -> dict[str, Any]:
    """Run a program in an empty directory, and return its status, its fault, and the directory of its outputs.

    Args:
        command: the interpreter and its arguments; empty for this Python. The path of the program is appended.
    """
    scratch = Path(tempfile.mkdtemp(prefix="topgallant-check-"))
    program, empty = scratch / "program", scratch / "empty"
    program.write_text(source, encoding="utf-8", errors="surrogateescape")
    empty.mkdir()
    kills = OomCounter()
    outputs = [scratch / name for name in ("stdout", "stderr")]
    with outputs[0].open("wb") as stdout, outputs[1].open("wb") as stderr:
        process = subprocess.Popen(
            [*(command or [sys.executable]), str(program)],
            cwd=str(empty),
            env=_environment(variables),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        try:
            fault = _wait(process, outputs, time.monotonic() + timeout, output_bytes)
        finally:
            process_tree.kill_group(process.pid)
    status = process.wait()
    if status == -signal.SIGKILL and not fault and kills.count():
        fault = "out_of_memory"
    return {"status": status, "fault": fault, "scratch": str(scratch), "sizes": [_size(path) for path in outputs]}


def _environment(variables: dict[str, str]) -> dict[str, str]:
    """Return the variables of the kernel without tokens of the hub. The kernel's Python is first in the search path."""
    kept = {name: value for name, value in os.environ.items() if name not in _HIDDEN}
    kept["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", os.defpath)])
    return {**kept, **variables}


def _wait(process: subprocess.Popen[bytes], outputs: list[Path], deadline: float, output_bytes: int) -> str:
    """Wait for the end of a program, and return the fault; empty if it ended by itself."""
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_LOOK_SECONDS)
        if sum(map(_size, outputs)) > output_bytes:
            return "too_much_output"
        if process.returncode is not None:
            return ""
        if time.monotonic() > deadline:
            return "timeout"


def _size(path: Path) -> int:
    return path.stat().st_size


def read(scratch: str, name: str, offset: int) -> str:
    """Return a piece of an output as base64."""
    with Path(scratch, name).open("rb") as file:
        file.seek(offset)
        return base64.b64encode(file.read(_PIECE)).decode()


def remove(path: str) -> bool:
    """Remove a directory, and return whether it no longer exists."""
    shutil.rmtree(path, ignore_errors=True)
    return not Path(path).exists()


def directory() -> str:
    """Return the working directory of the kernel."""
    return str(Path.cwd())


def call(request: str) -> str:
    """Call a function of this module. The request, in base64, names the function. Return the result in base64."""
    name, arguments = json.loads(base64.b64decode(request))
    try:
        result = {"value": _FUNCTIONS[name](*arguments)}
    except Exception as error:  # noqa: BLE001 - the worker reports it
        result = {"error": f"{type(error).__name__}: {error}"}
    return base64.b64encode(json.dumps(result).encode()).decode()


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "directory": directory,
    "oom_kills": OomCounter().count,
    "read": read,
    "remove": remove,
    "run": run,
}
