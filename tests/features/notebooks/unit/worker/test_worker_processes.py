"""A program ends with its whole group: by itself, at its time limit, or when it prints too much."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from toolbox.features.notebooks.worker import worker_processes
from toolbox.features.notebooks.worker.notebook_results import Fault


def test_the_output_and_the_status_are_returned() -> None:
    end = worker_processes.run(["sh", "-c", "echo out; echo err >&2; exit 3"], timeout=60)
    assert (end.status, end.stdout, end.stderr, end.fault) == (3, b"out\n", b"err\n", None)


def test_a_program_that_does_not_end_is_killed() -> None:
    end = worker_processes.run(["sleep", "600"], timeout=0.05)
    assert (end.status, end.fault) == (-9, Fault.TIMEOUT)


def test_a_program_that_prints_too_much_is_killed() -> None:
    end = worker_processes.run(["yes"], timeout=60, output_bytes=100_000)
    assert end.fault is Fault.TOO_MUCH_OUTPUT
    assert len(end.stdout) < 200_000


def test_a_process_that_keeps_the_output_open_is_killed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "left")
    outlet = os.open(tmp_path / "left", os.O_RDONLY | os.O_NONBLOCK)
    end = worker_processes.run(["sh", "-c", f"sleep 600 > {tmp_path}/left & echo done"], timeout=60)
    assert end.stdout == b"done\n"
    os.set_blocking(outlet, True)
    assert os.read(outlet, 1) == b""  # no process has the other end
    os.close(outlet)


def test_output_arrives_in_pieces_where_it_is_received() -> None:
    pieces: list[bytes] = []
    end = worker_processes.run(["sh", "-c", "echo out; echo err >&2"], receive=pieces.append)
    assert b"".join(pieces) == b"out\nerr\n"
    assert end.stdout == b""


def test_a_program_in_the_background_ends_with_the_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_processes, "END_SECONDS", 60.0)
    program = f"import sys; sys.stdin.read(); open({str(tmp_path / 'end')!r}, 'w')"
    with worker_processes.background([sys.executable, "-c", program]):
        pass
    assert (tmp_path / "end").exists()
