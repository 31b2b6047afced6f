"""The descendants of a process are found, whatever their names are and also if they have left their parent."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.conftest import Script
from toolbox.ground.kit import process_tree
from toolbox.ground.kit.process_tree import MARK

SLEEP = str(shutil.which("sleep"))


@contextmanager
def running(*command: str, env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program during the block, and kill it at the end."""
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_children_and_their_children_are_descendants() -> None:
    with running("sh", "-c", "sleep 60 & echo $!; wait") as shell:
        assert shell.stdout is not None
        grandchild = int(shell.stdout.readline())
        found = process_tree.descendants(os.getpid())
        assert (found[shell.pid].parent, found[grandchild].parent) == (os.getpid(), shell.pid)
        assert found[shell.pid].memory > 0
        process_tree.send(grandchild, signal.SIGKILL)


def test_a_process_without_children_has_no_descendants() -> None:
    with running(SLEEP, "60") as process:
        assert process_tree.descendants(process.pid) == {}


@pytest.mark.parametrize("name", ["a) b", "((", ") R 1 1", "new\nline"])
def test_a_process_may_have_any_name(tmp_path: Path, name: str) -> None:
    shutil.copy(SLEEP, tmp_path / name)
    with running(str(tmp_path / name), "60") as process:
        assert process_tree.descendants(os.getpid())[process.pid].parent == os.getpid()


def test_a_zombie_is_not_a_descendant() -> None:
    with running("true") as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert process.pid not in process_tree.descendants(os.getpid())


def test_processor_time_is_counted_in_ticks() -> None:
    with running("sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo; exec sleep 60") as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert 0 < process_tree.descendants(os.getpid())[process.pid].ticks < 3000


def test_an_orphan_is_a_descendant_of_the_process_that_adopts_it(script: Script) -> None:
    source = """
import os, time
from toolbox.ground.kit import process_tree
process_tree.adopt_orphans()
middle = os.fork()
if middle == 0:
    if os.fork() == 0:
        time.sleep(60)
    os._exit(0)
os.waitpid(middle, 0)
(orphan,) = process_tree.descendants(os.getpid())
process_tree.send(orphan, 9)
print(os.waitpid(-1, 0) == (orphan, 9))
"""
    assert script(source) == "True\n"


def test_a_child_may_die_with_its_parent(script: Script) -> None:
    source = """
import os, time
from toolbox.ground.kit import process_tree
process_tree.adopt_orphans()
parent = os.fork()
if parent == 0:
    if os.fork() == 0:
        process_tree.die_with_parent()
        os.kill(os.getppid(), 9)
        time.sleep(60)
    time.sleep(60)
os.waitpid(parent, 0)
print(os.waitpid(-1, 0)[1])
"""
    assert script(source) == "9\n"


def test_a_signal_to_an_ended_process_is_not_an_error() -> None:
    with running("true") as process:
        process.wait()
        process_tree.send(process.pid, signal.SIGTERM)


def test_a_process_is_found_by_its_mark_and_the_whole_of_its_directory() -> None:
    code = "print(flush=True); import time; time.sleep(60)"
    with (
        running(sys.executable, "-c", code, env={MARK: "/a/b"}) as process,
        running(sys.executable, "-c", code, env={MARK: "/a/bc", f"OTHER_{MARK}": "/a/b"}) as other,
    ):
        for one in (process, other):
            assert one.stdout is not None
            one.stdout.readline()
        assert process_tree.marked("/a/b") == [process.pid]
