"""A session of tests fails if it leaves processes, and names them and late ones; it ignores those of other sessions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import leftovers

ROOT = Path(__file__).parents[2]
CONFTEST = """
import os
from tests.leftovers import Leftovers
from tests import leftovers

leftovers._LATE_SECONDS, leftovers._GRACE_SECONDS = {seconds}
find_lasting = leftovers.lasting


def lasting(*args):
    found = find_lasting(*args)
    if os.path.exists("end"):
        os.write(os.open("end", os.O_RDWR), b"\\n\\n")  # a line for each of two processes, in a pipe that stays open
    return found


leftovers.lasting = lasting


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Leftovers(config))
"""
TESTS = """
import os, subprocess

def test_that_leaves_nothing():
    subprocess.run(["true"], check=True)

def test_that_leaves_a_process():
    subprocess.Popen(["sleep", "61"], start_new_session=True){detail}

def test_that_leaves_one_without_variables(tmp_path):
    subprocess.Popen(["sleep", "62"], start_new_session=True, env={{}}, cwd=tmp_path){detail}
"""


def session(directory: Path, detail: str, *options: str, seconds: tuple[float, float] = (0.0, 0.5)) -> tuple[int, str]:
    """Run a session of tests, and return its exit status and its output.

    Args:
        seconds: after how many seconds a process is late, and left over.
    """
    (directory / "conftest.py").write_text(CONFTEST.format(seconds=seconds))
    (directory / "test_it.py").write_text(TESTS.format(detail=detail))
    command = [sys.executable, "-m", "pytest", "-q", f"--basetemp={directory / 'temp'}", *options, str(directory)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=directory, env=env, stdout=subprocess.PIPE, text=True, check=False)
    return done.returncode, done.stdout


@pytest.mark.parametrize("options", [[], ["-n", "2"]])
def test_a_session_that_leaves_processes_fails_and_names_them(tmp_path: Path, options: list[str]) -> None:
    status, output = session(tmp_path, "", *options)
    assert status == 1
    assert "processes that the tests have left" in output
    assert "sleep 61 (test_it.py::test_that_leaves_a_process (call))" in output
    assert "sleep 62 (test unknown)" in output
    assert list(leftovers.find("", tmp_path)) == []


def test_a_session_that_leaves_no_process_passes(tmp_path: Path) -> None:
    assert session(tmp_path, ".kill()", "-W", "ignore")[0] == 0


def test_a_session_whose_processes_end_late_passes_and_names_them(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "end")  # written to when the late processes are known
    detail = ".kill(); subprocess.Popen(['sh', '-c', 'read line <end'], start_new_session=True)"
    status, output = session(tmp_path, detail, "-W", "ignore", seconds=(0.5, 60.0))
    assert status == 0, output
    assert "processes that ended more than 0.5 s after the tests" in output
    assert "sh -c read line <end (test_it.py::test_that_leaves_a_process (call))" in output


def test_the_processes_of_another_session_are_ignored(tmp_path: Path) -> None:
    other = str(tmp_path)  # which no session has that runs at the same time
    with subprocess.Popen(["sleep", "60"], env={leftovers.VARIABLE: other}, cwd=tmp_path) as process:
        assert list(leftovers.find("ours", tmp_path)) == []
        assert [each.process.pid for each in leftovers.find(other, tmp_path)] == [process.pid]
        process.kill()
