"""What the agent answers; how workloads fare there is held for every backend by `tests/conformance`."""

from __future__ import annotations

import fcntl
import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psutil
import pytest

from tests.conformance.sites import wait_for
from toolbox.hosts import bootstrap
from toolbox.hosts.agent_connection import Connection
from toolbox.hosts.messages import Message
from toolbox.system import processes
from toolbox.system.processes import Channel

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
    """An agent on this machine, and what it tells.

    Args:
        directory: of one attempt.
    """

    def __init__(self, directory: Path, mark: Path) -> None:
        self.directory = directory
        self.events: queue.SimpleQueue[Message] = queue.SimpleQueue()
        channel = Channel(bootstrap.command(sys.executable, "-I", "-S"), processes.environment(mark))
        self.connection = Connection(channel, self.events.put, lambda _: None)
        self.hello = self.connection.start_agent()

    def ask(self, op: str, **fields: Any) -> Message:
        """Ask something about the attempt, and return the answer without its number."""
        answer = self.connection.request(op, **{"directory": str(self.directory), **fields})
        return {key: value for key, value in answer.items() if key != "id"}

    def submit(self, *command: str, **fields: Any) -> Message:
        """Start a workload."""
        order = {**ORDER, "command": command or ORDER["command"]}
        return self.ask("submit", **{"order": order, "sources": None, "offsets": None, **fields})

    def end(self) -> Message:
        """Wait for the end of a workload that was submitted."""
        return self.events.get(timeout=60)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    """An agent, and the end of what it has started."""
    found = Agent(tmp_path / "attempt", tmp_path / "mark")
    yield found
    processes.end_marked(found.directory, grace=0.1)
    found.connection.close()


@contextmanager
def held(agent: Agent) -> Iterator[None]:
    """Hold the lock of the attempt, as who is about to start it does."""
    agent.directory.mkdir(exist_ok=True)
    with (agent.directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def test_it_says_where_it_is(agent: Agent) -> None:
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
def test_what_cannot_be_done_is_answered_and_is_not_the_end(
    agent: Agent, op: str, fields: dict[str, Any], error: str
) -> None:
    assert error in agent.ask(op, **fields)["error"]
    assert agent.ask("state") == {"state": "absent"}


def test_a_directory_that_cannot_be_made_is_named(agent: Agent) -> None:
    assert agent.submit(directory="/proc/nowhere")["error"] == "No such file or directory: /proc/nowhere"


def test_an_output_is_told_from_where_it_is_known_on(agent: Agent) -> None:
    agent.submit("sh", "-c", "printf 0123456789", offsets={"stdout": 4, "stderr": 0})
    event = agent.end()
    assert (event["event"], event["stream"], event["offset"], event["data"]) == ("log", "stdout", 4, "NDU2Nzg5")


def test_who_submits_while_another_one_starts_it_waits_for_that(agent: Agent) -> None:
    with held(agent):
        answers: queue.SimpleQueue[Message] = queue.SimpleQueue()
        thread = threading.Thread(target=lambda: answers.put(agent.submit("true")))
        thread.start()
        with pytest.raises(queue.Empty):
            answers.get(timeout=0.3)
    assert answers.get(timeout=60) == {"state": "running"}
    thread.join()
    assert agent.end()["outcome"]["exit_code"] == 0


def test_who_cancels_while_another_one_starts_it_waits_for_the_one_to_be_told(agent: Agent) -> None:
    """The number 0 would be that of the agent and all that is with it."""
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


def test_who_only_looks_is_in_nobodys_way(agent: Agent) -> None:
    agent.directory.mkdir()
    with (agent.directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        assert agent.ask("state") == {"state": "absent"}


def test_what_is_sent_is_moved_to_its_place_by_who_starts_it(agent: Agent) -> None:
    for name in ("first", "second"):
        (agent.directory / name).mkdir(parents=True)
        (agent.directory / name / "file").write_text(name)
    agent.submit(sources=str(agent.directory / "first"))
    agent.submit(sources=str(agent.directory / "second"))
    assert (agent.directory / "src/file").read_text() == "first"
    agent.ask("cancel")
    assert agent.end()["event"] == "ended"


def test_what_a_submission_left_that_came_to_nothing_is_replaced(agent: Agent) -> None:
    (agent.directory / "src/half").mkdir(parents=True)
    (agent.directory / "sent").mkdir()
    (agent.directory / "sent/file").touch()
    agent.submit("true", sources=str(agent.directory / "sent"))
    assert [path.name for path in (agent.directory / "src").iterdir()] == ["file"]


def test_a_supervisor_that_is_killed_takes_all_of_it_along(agent: Agent) -> None:
    agent.submit("sh", "-c", "setsid sleep 60 & sleep 60")
    wait_for(lambda: len(processes.marked(agent.directory)) == 3, "the shell and its children")
    started = json.loads((agent.directory / "started").read_text())
    subprocess.run(["kill", "-9", str(started["pid"])], check=True)
    assert agent.end()["outcome"] is None
    wait_for(lambda: not processes.marked(agent.directory), "no process of it")
    assert agent.ask("state") == {"state": "lost"}


def test_the_agent_ends_with_its_connection_and_the_workload_does_not(agent: Agent) -> None:
    agent.submit()
    agent.connection.close()
    assert len(processes.marked(agent.directory)) == 1


def test_who_ends_is_not_left_as_a_zombie(agent: Agent) -> None:
    agent.submit("true")
    agent.end()
    server = psutil.Process(agent.hello["pid"])
    wait_for(lambda: not server.children(), "no child")
