"""A server is started with its own process group, and ended with all of it."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path

import pytest

from toolbox.features.inference.client.key_mask import KeyMask
from toolbox.features.inference.client.server_log import ServerLog
from toolbox.features.inference.client.server_process import ServerProcess


def run(log: Path, code: str, *, stop: bool = False) -> ServerProcess:
    """Run a program until its end, or stop it."""

    async def main() -> ServerProcess:
        process = await ServerProcess.start([sys.executable, "-uc", code], os.environ, ServerLog(log, KeyMask(None)))
        if stop:
            await process.stop(30)
        else:
            await process.ended
        return process

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("code", "status"), [("raise SystemExit(3)", "3"), ("import os; os.kill(os.getpid(), 9)", "137 (SIGKILL)")]
)
def test_a_server_that_ends_by_itself_has_died(tmp_path: Path, code: str, status: str) -> None:
    process = run(tmp_path / "log", code)
    assert process.ended.result() == f"the server ended with status {status}"
    assert process.died


def test_a_server_that_is_stopped_has_not_died(tmp_path: Path) -> None:
    process = run(tmp_path / "log", "import time; time.sleep(100)", stop=True)
    assert process.exit_status == 143
    assert not process.died


def test_a_server_that_died_before_it_is_stopped_has_died(tmp_path: Path) -> None:
    async def main() -> ServerProcess:
        log = ServerLog(tmp_path / "log", KeyMask(None))
        process = await ServerProcess.start([sys.executable, "-c", ""], os.environ, log)
        await process.ended
        await process.stop(30)
        return process

    assert asyncio.run(main()).died


def test_the_log_has_the_output_until_the_end_of_the_server(tmp_path: Path) -> None:
    process = run(tmp_path / "log", "print('x' * 1_000_000); print('last')")
    assert (tmp_path / "log").read_bytes() == b"x" * 1_000_000 + b"\nlast\n"
    assert process.log.tail(1) == ["last"]


def test_the_end_of_a_server_does_not_wait_for_processes_that_it_has_left(tmp_path: Path) -> None:
    left = "import sys, time\nwhile True: print('left')"
    code = f"""import subprocess, sys
child = subprocess.Popen([sys.executable, '-uc', {left!r}], start_new_session=True, stderr=subprocess.DEVNULL)
print('child', child.pid)"""
    process = run(tmp_path / "log", code)  # the child writes until the pipe is closed
    assert process.ended.result() == "the server ended with status 0"
    assert b"child" in (tmp_path / "log").read_bytes()


def test_the_tail_does_not_contain_the_output_of_an_earlier_start(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("Address already in use\n")
    process = run(tmp_path / "log", "print('new')")
    assert process.log.tail(5) == ["new"]
    assert not process.could_not_listen([])


def test_a_taken_port_is_noticed_without_a_message(tmp_path: Path) -> None:
    process = run(tmp_path / "log", "raise SystemExit(1)")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert process.could_not_listen([port])
    assert not process.could_not_listen([port])


def test_a_message_about_a_taken_port_is_noticed(tmp_path: Path) -> None:
    process = run(tmp_path / "log", "raise OSError(98, 'Address already in use')")
    assert process.could_not_listen([])
