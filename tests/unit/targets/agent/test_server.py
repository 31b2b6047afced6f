"""The agent answers requests about an attempt; `tests/conformance` tests how each backend runs workloads."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psutil
import pytest

from tests.conformance.sites import wait_for
from toolbox.ground.system import processes
from toolbox.ground.system.processes import Channel
from toolbox.targets import bootstrap
from toolbox.targets.agent import attempt_directory
from toolbox.targets.agent.supervisor_process import SupervisorPool
from toolbox.targets.agent_connection import Connection, ConnectionLost
from toolbox.targets.messages import Message

ORDER: Final[dict[str, Any]] = {
    "command": ["sleep", "60"],
    "env": {},
    "cwd": None,
    "secrets": [],
    "run_seconds": None,
    "silence_seconds": None,
    "grace_seconds": 0.1,
    "log_bytes": 1 << 20,
    "sample_seconds": None,
}


class Agent:
    """An agent on this machine, and its events.

    Args:
        directory: the directory of the attempt that all requests are about.
        mark: the mark that the agent's process carries.
    """

    def __init__(self, directory: Path, mark: Path) -> None:
        self.directory = directory
        self.events: queue.SimpleQueue[Message] = queue.SimpleQueue()
        channel = Channel(bootstrap.command(sys.executable), processes.environment(mark))
        self.connection = Connection(channel, self.events.put, lambda _: None)
        self.hello = self.connection.start_agent()

    def ask(self, op: str, **fields: Any) -> Message:
        """Ask something about the attempt, and return the answer without its id."""
        answer = self.connection.request(op, **{"directory": str(self.directory), **fields})
        return {key: value for key, value in answer.items() if key != "id"}

    def submit(self, *command: str, **fields: Any) -> Message:
        """Submit a workload, and return the answer."""
        order = {**ORDER, "command": command or ORDER["command"]}
        return self.ask("submit", **{"order": order, "sources": None, "offsets": None, **fields})

    def end(self) -> Message:
        """Return the next event of the agent, which is the end of the workload unless its logs are followed."""
        return self.events.get(timeout=60)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    """Yield an agent; at the end, end its workloads and close it."""
    found = Agent(tmp_path / "attempt", tmp_path / "mark")
    yield found
    processes.end_marked(found.directory, grace=0.1)
    found.connection.close()


@contextmanager
def held(agent: Agent) -> Iterator[None]:
    """Hold the lock of the attempt, as a supervisor does that is about to start."""
    agent.directory.mkdir(exist_ok=True)
    with (agent.directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def test_the_agent_reports_its_home_and_its_python(agent: Agent) -> None:
    assert agent.hello["home"] == str(Path.home())
    assert agent.hello["python"] == sys.version


def test_an_attempt_that_was_never_started_is_absent(agent: Agent) -> None:
    states = agent.ask("watch", directories={str(agent.directory): None})["states"]
    assert states == {str(agent.directory): {"state": "absent"}}
    assert [agent.ask(op) for op in ("state", "cancel")] == [{"state": "absent"}] * 2
    assert agent.ask("release") == {}
    assert not agent.directory.exists()


def test_an_attempt_runs_and_ends(agent: Agent) -> None:
    assert agent.submit() == {"state": "running"}
    assert agent.ask("state") == {"state": "running"}
    assert agent.ask("release")["error"] == f"{agent.directory} is in use: its workload is still running"
    assert agent.ask("cancel") == {"state": "running"}
    assert agent.end()["outcome"]["ended_by"] == "cancelled"
    assert agent.ask("state")["outcome"]["ended_by"] == "cancelled"


@pytest.mark.parametrize(
    ("op", "fields", "error"),
    [
        ("no_such_op", {}, "no_such_op"),
        ("list", {"patterns": ["/absolute"]}, "Non-relative patterns are unsupported"),
        ("list", {"patterns": [""]}, "Unacceptable pattern: ''"),
        ("submit", {"order": {}}, "sources"),
    ],
)
def test_an_invalid_request_is_answered_and_the_agent_goes_on(
    agent: Agent, op: str, fields: dict[str, Any], error: str
) -> None:
    assert error in agent.ask(op, **fields)["error"]
    assert agent.ask("state") == {"state": "absent"}


def test_a_directory_that_cannot_be_created_is_named(agent: Agent) -> None:
    assert agent.submit(directory="/proc/nowhere")["error"] == "No such file or directory: /proc/nowhere"


def test_a_log_is_sent_from_the_requested_offset(agent: Agent) -> None:
    agent.submit("sh", "-c", "printf 0123456789", offsets={"stdout": 4, "stderr": 0})
    event = agent.end()
    assert (event["event"], event["stream"], event["offset"], event["data"]) == ("log", "stdout", 4, "NDU2Nzg5")


def test_submitting_waits_for_another_process_that_starts_the_attempt(agent: Agent) -> None:
    with held(agent):
        answers: queue.SimpleQueue[Message] = queue.SimpleQueue()
        thread = threading.Thread(target=lambda: answers.put(agent.submit("true")))
        thread.start()
        with pytest.raises(queue.Empty):
            answers.get(timeout=0.3)
    assert answers.get(timeout=60) == {"state": "running"}
    thread.join()
    assert agent.end()["outcome"]["exit_code"] == 0


def test_a_workload_is_started_although_its_agent_was_killed_before_the_answer(agent: Agent) -> None:
    with ThreadPoolExecutor() as threads:
        with held(agent):
            submitting = threads.submit(agent.submit, "true")
            wait_for((agent.directory / "files").is_dir, "the supervisor, which waits for the lock")
            os.kill(agent.hello["pid"], signal.SIGKILL)
            assert isinstance(submitting.exception(60), ConnectionLost)
        wait_for(lambda: attempt_directory.state(str(agent.directory))["state"] == "ended", "the end")
    assert attempt_directory.state(str(agent.directory))["outcome"]["exit_code"] == 0


def test_cancelling_waits_until_the_pid_of_a_starting_supervisor_is_known(agent: Agent) -> None:
    """Until then the pid is 0; a signal to it would reach the whole process group of the agent."""
    with (
        held(agent),
        (agent.directory / "lock").open() as lock,
        subprocess.Popen(["sleep", "60"], stdin=lock) as supervisor,
    ):
        cancelling = threading.Thread(target=agent.ask, args=("cancel",))
        cancelling.start()
        cancelling.join(0.3)
        assert cancelling.is_alive()
        (agent.directory / "started").write_text(json.dumps({"pid": supervisor.pid}))
        assert supervisor.wait(60) == -15
        cancelling.join()
    assert agent.ask("state") == {"state": "lost"}


def test_reading_the_state_does_not_need_the_exclusive_lock(agent: Agent) -> None:
    agent.directory.mkdir()
    with (agent.directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        assert agent.ask("state") == {"state": "absent"}


def test_the_first_submission_moves_its_sources_into_place(agent: Agent) -> None:
    for name in ("first", "second"):
        (agent.directory / name).mkdir(parents=True)
        (agent.directory / name / "file").write_text(name)
    agent.submit(sources=str(agent.directory / "first"))
    agent.submit(sources=str(agent.directory / "second"))
    assert (agent.directory / "src/file").read_text() == "first"
    agent.ask("cancel")
    assert agent.end()["event"] == "ended"


def test_sources_of_an_unfinished_submission_are_replaced(agent: Agent) -> None:
    (agent.directory / "src/half").mkdir(parents=True)
    (agent.directory / "sent").mkdir()
    (agent.directory / "sent/file").touch()
    agent.submit("true", sources=str(agent.directory / "sent"))
    assert [path.name for path in (agent.directory / "src").iterdir()] == ["file"]


def test_all_processes_end_if_the_supervisor_is_killed(agent: Agent) -> None:
    agent.submit("sh", "-c", "setsid sleep 60 & sleep 60")
    wait_for(lambda: len(processes.marked(agent.directory)) == 3, "the shell and its children")
    started = json.loads((agent.directory / "started").read_text())
    subprocess.run(["kill", "-9", str(started["pid"])], check=True)
    assert agent.end()["outcome"] is None
    wait_for(lambda: not processes.marked(agent.directory), "the end of all its processes")
    assert agent.ask("state") == {"state": "lost"}


def test_all_processes_end_if_the_supervisor_is_killed_after_its_agent(agent: Agent) -> None:
    agent.submit("sh", "-c", "setsid sleep 60 & sleep 60")
    wait_for(lambda: len(processes.marked(agent.directory)) == 3, "the shell and its children")
    agent.connection.close()
    os.kill(attempt_directory.pid_of(str(agent.directory)), signal.SIGKILL)
    wait_for(lambda: not processes.marked(agent.directory), "the end of all its processes")


def test_a_killed_supervisor_of_another_submission_leaves_the_workload(agent: Agent, tmp_path: Path) -> None:
    agent.submit()
    other = Agent(agent.directory, tmp_path / "mark")
    assert other.submit() == {"state": "running"}
    for process in psutil.Process(other.hello["pid"]).children(recursive=True):
        process.kill()
    other.connection.close()
    assert agent.ask("state") == {"state": "running"}


def test_a_directory_that_was_removed_while_its_workload_runs_is_released_at_once(agent: Agent) -> None:
    agent.submit()
    shutil.rmtree(agent.directory)
    assert agent.ask("release") == {}
    assert agent.submit("true") == {"state": "running"}
    assert agent.end()["outcome"]["exit_code"] == 0


def test_the_agent_ends_with_its_connection_and_the_workload_does_not(agent: Agent) -> None:
    agent.submit()
    agent.connection.close()
    assert len(processes.marked(agent.directory)) == 1


def supervisor_of(agent: Agent, *command: str, name: str = "attempt") -> int:
    """Run a workload to its end, and return the process id of its supervisor."""
    directory = agent.directory.with_name(name)
    assert agent.submit(*command, directory=str(directory)) == {"state": "running"}
    assert agent.end()["outcome"]["ended_by"] == "exit"
    pid: int = json.loads((directory / "started").read_text())["pid"]
    return pid


def test_a_supervisor_whose_workload_has_ended_supervises_the_next_one(agent: Agent) -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    pids = [supervisor_of(agent, "python3", "-c", busy), supervisor_of(agent, "true", name="next")]
    assert pids[0] == pids[1]
    outcome = json.loads((agent.directory.with_name("next") / "outcome.json").read_text())
    assert outcome["cpu_seconds"] < 0.3
    assert attempt_directory.pid_of(str(agent.directory)) == 0


def test_a_supervisor_starts_a_workload_after_one_that_could_not_be_started(agent: Agent) -> None:
    agent.submit("true", directory=str(agent.directory.with_name("first")))
    agent.end()
    agent.submit("no-such-program")
    assert agent.end()["outcome"]["ended_by"] == "not_started"
    agent.directory = agent.directory.with_name("third")
    assert agent.submit("true") == {"state": "running"}
    assert agent.end()["outcome"]["exit_code"] == 0


def test_a_supervisor_that_was_killed_while_it_waited_is_replaced(agent: Agent) -> None:
    first = supervisor_of(agent, "true")
    os.kill(first, signal.SIGTERM)
    wait_for(lambda: not psutil.pid_exists(first), "the end of the supervisor")
    assert supervisor_of(agent, "true", name="next") != first
    assert len(psutil.Process(agent.hello["pid"]).children()) == 1


def test_a_supervisor_is_not_used_again_while_its_attempt_is_being_cancelled(agent: Agent) -> None:
    agent.directory.mkdir()
    cancelling = os.open(agent.directory, os.O_RDONLY)
    fcntl.flock(cancelling, fcntl.LOCK_SH)
    first = supervisor_of(agent, "true")
    os.close(cancelling)
    assert supervisor_of(agent, "true", name="next") != first


def test_a_supervisor_of_a_watched_attempt_is_used_again(agent: Agent) -> None:
    agent.submit()
    agent.ask("watch", directories={str(agent.directory): None})
    agent.submit()
    agent.ask("cancel")
    agent.end()
    pid = json.loads((agent.directory / "started").read_text())["pid"]
    assert supervisor_of(agent, "true", name="next") == pid


def test_a_supervisor_without_a_workload_ends_with_the_agent(agent: Agent) -> None:
    pid = supervisor_of(agent, "true")
    agent.connection.close()
    assert not psutil.pid_exists(pid)


def test_a_supervisor_that_cannot_be_started_leaves_no_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_fork() -> int:
        raise BlockingIOError(errno.EAGAIN, "no more processes")

    monkeypatch.setattr(os, "fork", no_fork)
    before = psutil.Process().num_fds()
    with pytest.raises(BlockingIOError):
        SupervisorPool().submit({})
    assert psutil.Process().num_fds() == before
