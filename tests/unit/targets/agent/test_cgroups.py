"""The processes that a killed supervisor leaves are found by the attempt's cgroup, if the system allows one."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.conformance.sites import wait_for
from tests.unit.conftest import Script
from tests.unit.targets.agent.test_server import Agent, agent
from tests.unit.targets.agent.test_supervisor import outcome, run
from toolbox.ground.kit import own_cgroups
from toolbox.targets.agent import attempt_directory, cgroups, machine

__all__ = ["agent"]

# The process `sleep` leaves its parent and its session, and clears its environment.
ESCAPE = """
import os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 1000)
        os.execve("/bin/sleep", ["sleep", "600"], {})
    os._exit(0)
os.wait()
"""
SCRIPT = f"import os\nopen('parent', 'w').write(str(os.getpid()))\n{ESCAPE}\nimport time; time.sleep(600)"


@pytest.fixture
def group(tmp_path: Path) -> Iterator[str]:
    """Yield the path of the cgroup of an attempt; skip the test if no cgroup can be created."""
    found = cgroups.create(str(tmp_path))
    if not found:
        pytest.skip("no cgroup can be created here")
    yield found
    cgroups.kill(found)


@pytest.fixture
def escaped(agent: Agent, group: str) -> Iterator[psutil.Process]:  # noqa: ARG001  # skips without cgroups
    """Yield a process of the agent's attempt that has left its parent and its session, but not its cgroup."""
    agent.submit("/usr/bin/env", "python3", "-c", SCRIPT)
    supervisor = psutil.Process(attempt_directory.pid_of(str(agent.directory)))

    def find() -> list[psutil.Process]:
        found = []
        for each in supervisor.children(recursive=True):
            with suppress(psutil.NoSuchProcess):  # intermediate processes end at once
                found += [each] if each.name() == "sleep" else []
        return found

    wait_for(find, "the escaped process")
    (process,) = find()
    yield process
    with suppress(psutil.NoSuchProcess):
        process.kill()


def is_gone(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.status() == psutil.STATUS_ZOMBIE
    return True


def test_processes_of_a_killed_supervisor_are_killed(agent: Agent, escaped: psutil.Process) -> None:
    os.kill(attempt_directory.pid_of(str(agent.directory)), signal.SIGKILL)
    event = agent.end()
    assert (event["event"], event["outcome"], event["may_remain"]) == ("ended", None, False)
    wait_for(lambda: is_gone(escaped), "the end of the escaped process")
    assert cgroups.find(str(agent.directory)) == []


def test_another_agent_kills_processes_of_a_killed_supervisor(
    agent: Agent, escaped: psutil.Process, tmp_path: Path
) -> None:
    supervisor = attempt_directory.pid_of(str(agent.directory))
    agent.connection.close()
    os.kill(supervisor, signal.SIGKILL)
    other = Agent(agent.directory, tmp_path / "mark")
    try:
        assert other.ask("cancel") == {"state": "lost"}
        wait_for(lambda: is_gone(escaped), "the end of the escaped process")
    finally:
        other.connection.close()


def test_an_attempt_that_succeeds_leaves_no_group(agent: Agent, group: str) -> None:  # noqa: ARG001  # skips without cgroups
    agent.submit("sh", "-c", "cat /proc/self/cgroup")
    assert agent.end()["outcome"]["exit_code"] == 0
    name = cgroups._name(str(agent.directory))
    assert name in (agent.directory / "stdout.log").read_text()
    wait_for(lambda: cgroups.find(str(agent.directory)) == [], "the group to be removed")


def test_leftover_processes_are_counted_and_ended(script: Script, tmp_path: Path) -> None:
    run(script, command=["python3", "-c", ESCAPE])
    assert (outcome(tmp_path)["exit_code"], outcome(tmp_path)["leftovers"]) == (0, 1)


def test_a_group_is_killed_with_the_groups_below_it(group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "_KILL", "no.such.file")  # Linux before 5.14 has no such file
    inner = Path(group) / "inner"
    inner.mkdir()
    with subprocess.Popen(["sleep", "600"]) as process:
        (inner / "cgroup.procs").write_text(str(process.pid))
        assert cgroups.members(group) == [process.pid]
        cgroups.send_kill(group)
        assert process.wait() == -signal.SIGKILL
    assert cgroups.kill(group)
    assert not Path(group).exists()


@pytest.fixture
def lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory of an attempt whose supervisor was killed, on a system without cgroups."""
    monkeypatch.setattr(own_cgroups, "mounts", dict)
    monkeypatch.setattr(cgroups, "_parents", list)
    (tmp_path / "started").write_text(f'{{"pid": 1, "boot": "{machine.boot()}"}}')
    return tmp_path


def test_without_a_group_processes_may_remain(lost: Path) -> None:
    assert cgroups.create(str(lost)) == ""
    assert attempt_directory.kill(str(lost)) is True


def test_no_process_of_an_attempt_remains_after_the_machine_was_restarted(lost: Path) -> None:
    (lost / "started").write_text('{"pid": 1, "boot": "another"}')
    assert attempt_directory.kill(str(lost)) is False


def test_killing_a_group_is_given_up_after_a_timeout(group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "_KILL_SECONDS", 0.1)
    monkeypatch.setattr(cgroups, "send_kill", lambda _: None)
    with subprocess.Popen(["sleep", "600"]) as process:
        (Path(group) / "cgroup.procs").write_text(str(process.pid))
        began = time.monotonic()
        assert cgroups.kill(group) is False
        assert time.monotonic() - began < 10
        process.kill()
