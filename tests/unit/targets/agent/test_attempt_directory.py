"""The state of an attempt is read from its directory; `test_server.py` and `test_pod.py` test how agents use it."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from toolbox.ground.kit import process_tree
from toolbox.targets.agent import attempt_directory


def fill(directory: Path, *names: str) -> None:
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(name)


def test_an_attempt_that_was_never_started_is_absent(tmp_path: Path) -> None:
    assert (
        attempt_directory.state(str(tmp_path / "none")) == attempt_directory.state(str(tmp_path)) == {"state": "absent"}
    )


def test_an_attempt_runs_while_its_lock_is_held_and_is_lost_without_an_outcome(tmp_path: Path) -> None:
    fill(tmp_path, "lock", "started")
    holder = os.open(tmp_path / "lock", os.O_RDWR)
    fcntl.flock(holder, fcntl.LOCK_EX)
    assert attempt_directory.state(str(tmp_path)) == {"state": "running"}
    os.close(holder)
    assert attempt_directory.state(str(tmp_path)) == {"state": "lost"}


def test_reading_the_state_blocks_no_process(tmp_path: Path) -> None:
    fill(tmp_path, "lock")
    other = os.open(tmp_path / "lock", os.O_RDWR)
    fcntl.flock(other, fcntl.LOCK_SH)
    assert attempt_directory.state(str(tmp_path)) == {"state": "absent"}
    os.close(other)


def test_an_attempt_has_ended_when_its_outcome_is_complete(tmp_path: Path) -> None:
    fill(tmp_path, "lock", "started", "exit_code")
    assert attempt_directory.state(str(tmp_path)) == {"state": "lost"}
    (tmp_path / "outcome.json").write_text("no JSON")
    assert attempt_directory.state(str(tmp_path)) == {"state": "lost"}
    (tmp_path / "outcome.json").write_text(json.dumps({"exit_code": 3}))
    assert attempt_directory.state(str(tmp_path)) == {"state": "ended", "outcome": {"exit_code": 3}}


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"pid": "x"}', '{"pid": true}', '{"pid": 1}', "[" * 9999])
def test_an_invalid_pid_of_a_supervisor_is_ignored(tmp_path: Path, content: str) -> None:
    """The workload can write any pid to the file `started`; without the check, the agent would signal that process."""
    fill(tmp_path, "lock")
    (tmp_path / "started").write_text(content)
    assert attempt_directory.pid_of(str(tmp_path)) == 0


def test_the_pid_of_a_supervisor_is_used_only_if_the_process_holds_the_lock(tmp_path: Path) -> None:
    fill(tmp_path, "lock")
    (tmp_path / "started").write_text(json.dumps({"pid": os.getpid()}))
    assert attempt_directory.pid_of(str(tmp_path)) == 0
    holder = os.open(tmp_path / "lock", os.O_RDWR)
    assert attempt_directory.pid_of(str(tmp_path)) == os.getpid()
    os.close(holder)
    assert attempt_directory.pid_of(str(tmp_path / "none")) == 0


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ([], []),
        (["**"], ["files/a", "files/sub/b.csv", "files/sub/deep/c", "files/to-a", "files/to-sub"]),
        (["sub"], ["files/sub/b.csv", "files/sub/deep/c"]),
        (["**/*.csv", "a", "none*"], ["files/a", "files/sub/b.csv"]),
        (["to-*"], ["files/to-a", "files/to-sub"]),
    ],
)
def test_the_listing_has_the_files_that_match_and_the_files_of_the_supervisor(
    tmp_path: Path, patterns: Sequence[str], expected: list[str]
) -> None:
    fill(tmp_path, "files/a", "files/sub/b.csv", "files/sub/deep/c", "samples.csv", "started", "src/d")
    (tmp_path / "files/to-a").symlink_to("a")
    (tmp_path / "files/to-sub").symlink_to("sub")
    assert attempt_directory.listing(str(tmp_path), patterns) == [*expected, "samples.csv"]


def test_a_loop_of_links_is_not_followed(tmp_path: Path) -> None:
    fill(tmp_path, "files/sub/a")
    (tmp_path / "files/sub/up").symlink_to("..")
    assert attempt_directory.listing(str(tmp_path), ["**"]) == ["files/sub/a", "files/sub/up"]


def test_only_existing_logs_have_a_size(tmp_path: Path) -> None:
    (tmp_path / "stderr.log").write_bytes(b"1234")
    assert attempt_directory.log_sizes(str(tmp_path)) == {"stderr": 4}


def test_only_processes_with_the_mark_of_the_attempt_are_killed(tmp_path: Path) -> None:
    marks = [str(tmp_path / name) for name in ("one", "other")]
    one, other = (subprocess.Popen(["sleep", "60"], env={**os.environ, "TOPGALLANT_STEP": mark}) for mark in marks)
    attempt_directory.kill(marks[0])
    assert one.wait(timeout=20) == -9
    assert other.poll() is None
    other.kill()
    other.wait()


def test_processes_that_are_forked_during_the_search_are_killed_too(tmp_path: Path) -> None:
    mark = str(tmp_path)
    script = "import os, time; [os.fork() or time.sleep(60) for _ in range(400) if not time.sleep(0.003)]"
    forking = subprocess.Popen(
        [sys.executable, "-c", script], start_new_session=True, env={**os.environ, "TOPGALLANT_STEP": mark}
    )
    while len(process_tree.marked(mark)) < 30:
        assert forking.poll() is None
    attempt_directory.kill(mark)
    assert process_tree.marked(mark) == []
    assert forking.wait(timeout=20) == -9


def test_cancelling_a_lost_attempt_kills_its_processes(tmp_path: Path) -> None:
    fill(tmp_path, "lock", "started")
    left = subprocess.Popen(["sleep", "60"], env={**os.environ, "TOPGALLANT_STEP": str(tmp_path)})
    assert attempt_directory.cancel(str(tmp_path)) == {"state": "lost"}
    assert left.wait(timeout=20) == -9
