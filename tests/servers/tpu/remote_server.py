"""A test server in another process, for tests that kill the process of the orchestrator, or their own."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.servers.tpu.cloud import Timings
from tests.servers.tpu.control import UNSUPPORTED, Remote

_ROOT: Final = Path(__file__).parents[3]
_END_SECONDS: Final = 60.0


@contextmanager
def serving_process(
    directory: Path,
    *,
    timings: Timings | None = None,
    has_workers: bool = True,
    is_frozen: bool = False,
    port: int = 0,
    shared: Path | None = None,
) -> Iterator[Remote]:
    """Run a server in another process for a test, which is skipped if this machine cannot run workers.

    The arguments are those of `Server`.

    Raises:
        AssertionError: something in the server itself has failed.
    """
    directory.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.servers.tpu", "--directory", str(directory), "--port", str(port)]
    command += ["--timings", json.dumps(dataclasses.asdict(timings or Timings()))]
    command += [] if has_workers else ["--no-workers"]
    command += ["--frozen"] if is_frozen else []
    command += [] if shared is None else ["--shared", str(shared)]
    errors = directory / "server.log"
    with errors.open("wb") as log:
        # The server has its own session, so Ctrl-C in the terminal of the tests does not reach it.
        process = subprocess.Popen(
            command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
        )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if not process.stdout.readline() and process.wait(_END_SECONDS) == UNSUPPORTED:
            pytest.skip(errors.read_text().strip())
        assert process.poll() is None, errors.read_text()
        yield Remote(directory)
    finally:
        process.stdin.close()
        process.wait(_END_SECONDS)
        process.stdout.close()
    assert process.returncode == 0, errors.read_text()
