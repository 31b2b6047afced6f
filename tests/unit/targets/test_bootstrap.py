"""The agent is sent as text over the connection that it then uses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from toolbox.targets import bootstrap


def run(sent: bytes) -> subprocess.CompletedProcess[bytes]:
    """Run the program that receives the agent, with this input."""
    command = bootstrap.command(sys.executable)
    return subprocess.run(command, input=sent, capture_output=True, check=False, timeout=60)


def test_the_program_is_its_size_followed_by_its_source() -> None:
    program = bootstrap.program()
    assert int(program[:8]) == len(program) - 8
    compile(program[8:], "agent", "exec")


def test_the_agent_needs_no_packages_and_leaves_no_files() -> None:
    done = run(bootstrap.program())
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout)["event"] == "hello"


@pytest.mark.parametrize("name", ["os.py", "json.py"])
@pytest.mark.parametrize("is_on_path", [True, False])
def test_the_agent_imports_no_files_of_its_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_on_path: bool
) -> None:
    """The working directory of an SSH session is the home directory, in which a workload may have left any file."""
    (tmp_path / name).write_text("raise SystemExit('this file must not be imported')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path) if is_on_path else "")
    done = run(bootstrap.program())
    assert (done.returncode, done.stderr) == (0, b"")


def test_input_after_the_program_is_read_as_requests() -> None:
    done = run(bootstrap.program() + b'{"id": 7, "op": "state", "directory": "/nowhere"}\n')
    _, answer = done.stdout.strip().splitlines()
    assert json.loads(answer) == {"id": 7, "state": "absent"}


def test_a_connection_that_ends_too_early_is_an_error() -> None:
    for sent in (b"", b"0000", bootstrap.program()[:1000]):
        done = run(sent)
        assert done.stderr == b"the connection ended before the whole agent arrived\n"
        assert done.returncode == 1
