"""The agent is sent as text over the connection that it then uses."""

from __future__ import annotations

import json
import subprocess
import sys

from toolbox.hosts import bootstrap


def run(sent: bytes, *options: str) -> subprocess.CompletedProcess[bytes]:
    """Run the program that receives the agent, with this input."""
    command = bootstrap.command(sys.executable, *options)
    return subprocess.run(command, input=sent, capture_output=True, check=False, timeout=60)


def test_the_program_is_its_size_followed_by_its_source() -> None:
    program = bootstrap.program()
    assert int(program[:8]) == len(program) - 8
    compile(program[8:], "agent", "exec")


def test_the_agent_needs_no_packages_and_leaves_no_files() -> None:
    done = run(bootstrap.program(), "-I", "-S")
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout)["event"] == "hello"


def test_input_after_the_program_is_read_as_requests() -> None:
    done = run(bootstrap.program() + b'{"id": 7, "op": "state", "directory": "/nowhere"}\n')
    _, answer = done.stdout.strip().splitlines()
    assert json.loads(answer) == {"id": 7, "state": "absent"}


def test_a_connection_that_ends_too_early_is_an_error() -> None:
    for sent in (b"", b"0000", bootstrap.program()[:1000]):
        done = run(sent)
        assert done.stderr == b"the connection ended before the whole agent arrived\n"
        assert done.returncode == 1
