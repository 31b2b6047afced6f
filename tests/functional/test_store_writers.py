"""Runs that end at the same time are each recorded once and completely, even if another writer is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Final

from sqlalchemy import func, select

from tests.fakes.history import START, Past, Tried
from tests.functional.grid import wait
from toolbox.records.results import recording, tables
from toolbox.records.results.store import Store

WRITERS: Final = 8
RUNS: Final = 5  # per writer
CELLS: Final = 40
TIMEOUT_SECONDS: Final = 120.0

# All writers begin when the file `go` exists. One stops in the middle of a transaction, and is killed there.
WRITER: Final = """
import sys, time
from pathlib import Path
from toolbox.records.results import recording, tables
from toolbox.records.results.store import Store

store, go, middle, *runs = map(Path, sys.argv[1:])
if middle.name == "stop":
    def stop(*_):
        middle.touch()
        time.sleep(600)
    recording._Writer._samples = stop
while not go.exists():
    time.sleep(0.005)
for run in runs:
    with Store(str(store)) as opened:
        recording.record(opened, run)
"""


def test_concurrent_writers_lose_and_duplicate_nothing(tmp_path: Path) -> None:
    store, go, middle = tmp_path / "results.sqlite", tmp_path / "go", tmp_path / "stop"
    runs = [[_run(tmp_path, writer, number) for number in range(RUNS)] for writer in range(WRITERS)]
    writers = [_writer(store, go, middle if number == 0 else Path("-"), mine) for number, mine in enumerate(runs)]
    go.touch()
    wait(middle.exists, str(middle), TIMEOUT_SECONDS)
    writers[0].send_signal(signal.SIGKILL)
    ended = [writer.communicate(timeout=TIMEOUT_SECONDS) for writer in writers]
    assert [writer.returncode for writer in writers] == [-signal.SIGKILL, *[0] * (WRITERS - 1)], ended
    assert not any(b"locked" in stderr for _, stderr in ended)
    assert _counts(store) == _expected((WRITERS - 1) * RUNS)
    with Store(str(store)) as opened:
        assert [recording.record(opened, run).is_new for run in runs[0]] == [True] * RUNS
    assert _counts(store) == _expected(WRITERS * RUNS)


def _run(parent: Path, writer: int, number: int) -> Path:
    cells = {f"x={cell}": [Tried(metrics={"time": 1.0, "loss": 2.0})] for cell in range(CELLS)}
    past = replace(Past(cells), run=f"r-{writer}-{number}", started=START + timedelta(hours=writer, minutes=number))
    return past.write(parent)


def _writer(store: Path, go: Path, middle: Path, runs: list[Path]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", WRITER, str(store), str(go), str(middle), *map(str, runs)]
    return subprocess.Popen(command, cwd=Path(__file__).parents[2], stderr=subprocess.PIPE)


def _counts(store: Path) -> dict[str, int]:
    with Store(str(store)) as opened, opened.reading() as connection:
        every = (tables.RUNS, tables.CELLS, tables.RESULTS, tables.ATTEMPTS, tables.SERIES, tables.SAMPLES)
        return {table.name: connection.scalar(select(func.count()).select_from(table)) or 0 for table in every}


def _expected(runs: int) -> dict[str, int]:
    results = runs * CELLS
    return {
        "runs": runs, "cells": CELLS, "results": results, "attempts": results,
        "series": 2 * CELLS, "samples": 2 * results,
    }  # fmt: skip
