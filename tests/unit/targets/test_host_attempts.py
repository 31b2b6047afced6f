"""A host restores its connection, and reports the attempts that run on it."""

from __future__ import annotations

import base64
import json
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from tests.conformance.sites import wait_for
from toolbox.ground.model.errors import Cancelled, StepError, SubmissionUnknown
from toolbox.ground.model.verdicts import Cause
from toolbox.ground.model.workloads import AttemptState, AttemptStatus, EndedBy, Handle
from toolbox.ground.system import cancellation, processes
from toolbox.ground.system.processes import Channel
from toolbox.targets import bootstrap, host_attempts
from toolbox.targets.agent.log_files import END_BYTES
from toolbox.targets.host_attempts import HostAttempt, HostAttempts

AGENT: Final = bootstrap.command(sys.executable)
HELLO: Final = 'echo \'{"event": "hello", "home": "/"}\''
ORDER: Final[dict[str, Any]] = {
    "env": {},
    "cwd": None,
    "secrets": [],
    "run_seconds": None,
    "silence_seconds": None,
    "grace_seconds": 0.1,
    "log_bytes": 1 << 20,
    "sample_seconds": None,
}


def host_attempt(
    directory: Path, there: str = "/there", *, timeout: float = 60, log_bytes: int = 1 << 20
) -> HostAttempt:
    """Return an attempt whose logs are copied to a directory."""
    handle = Handle("cell", directory)
    return HostAttempt(handle, there, copies_logs=True, timeout=timeout, log_bytes=log_bytes)


class Machine:
    """A host on this machine, with the names of the attempts that it reports.

    Args:
        directory: the directory of the attempt and of its local copy.
        scripts: shell scripts that replace the agent in the first connections, one script per connection.
    """

    def __init__(self, directory: Path, *scripts: str) -> None:
        self.directory = directory
        self.mark = directory / "mark"
        self.launches = 0
        self.notified: list[str] = []
        self._scripts = list(scripts)
        self.host = HostAttempts("there", self._launch, self.notified.append)

    def start(self, *command: str, timeout: float = 60) -> str:
        """Start a workload, and return its directory."""
        there = str(self.directory / "attempt")
        order = {**ORDER, "command": command}
        self.host.start(host_attempt(self.directory, there, timeout=timeout), order, sources=None)
        return there

    def disconnect(self) -> None:
        """Kill the program of the connection."""
        connection = self.host.connection._connection
        assert connection is not None
        connection._channel._process.kill()

    def answer(self, *scripts: str) -> None:
        """Let these scripts replace the agent in the next connections."""
        self._scripts += scripts

    def recover(self) -> None:
        """Let the next connection start the agent."""
        self._scripts.clear()

    def _launch(self) -> Channel:
        self.launches += 1
        script = self._scripts.pop(0) if self._scripts else None
        return Channel(["sh", "-c", script] if script else AGENT, processes.environment(self.mark))


Machines = Callable[..., Machine]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machines]:
    """Yield a function that makes a machine; at the end, end its workload and close its host."""
    machines: list[Machine] = []

    def make(*scripts: str) -> Machine:
        machines.append(Machine(tmp_path, *scripts))
        return machines[-1]

    yield make
    processes.end_marked(tmp_path / "attempt", grace=0.1)
    for one in machines:
        one.host.close()


def ask(machine: Machine, timeout: float = 60) -> Any:
    """Request the state of a missing attempt, and return it."""
    return machine.host.connection.request("state", timeout, directory="/nowhere")["state"]


REFUSED: Final = "echo 'Connection refused' >&2; exit 255"
DENIED: Final = "echo 'Permission denied (publickey).' >&2; exit 255"


def test_a_refused_connection_is_tried_again(machine: Machines) -> None:
    one = machine(REFUSED, REFUSED)
    assert ask(one) == "absent"
    assert one.launches == 3


def test_a_timeout_names_its_length_and_the_last_error(machine: Machines) -> None:
    one = machine(*[REFUSED] * 9)
    with pytest.raises(StepError, match=r"^there: the host cannot be reached for 1 s: Connection refused$") as caught:
        ask(one, 1.0)
    assert caught.value.cause is Cause.INFRASTRUCTURE
    assert one.launches > 1


def test_after_a_timeout_later_calls_try_once(machine: Machines) -> None:
    one = machine(*[REFUSED] * 100)
    with pytest.raises(StepError, match="Connection refused"):
        ask(one, 0.3)
    tries = one.launches
    for later_call in (1, 2):
        with pytest.raises(StepError, match="Connection refused"):
            ask(one, 60)
        assert one.launches == tries + later_call
    one.recover()
    assert ask(one) == "absent"


def test_a_final_error_is_raised_at_once_and_stands_before_a_banner(machine: Machines) -> None:
    one = machine(f"printf '%s\\n' a b c d e >&2; {DENIED}")
    with pytest.raises(StepError) as caught:
        ask(one)
    first, *others = str(caught.value).splitlines()
    assert first == "there: the host cannot be reached: Permission denied (publickey)."
    assert others == ["printed before it:", "  c", "  d", "  e"]
    assert one.launches == 1


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (127, "sh: 1: exec: python9: not found"),
        (127, "sh: python9: Kommando nicht gefunden"),
        (126, "sh: 1: exec: /etc: Permission denied"),
        (1, f"{bootstrap.TOO_OLD}, and this is 3.6.9"),
    ],
)
def test_a_wrong_interpreter_is_a_fault_of_the_configuration(machine: Machines, status: int, error: str) -> None:
    one = machine(f"echo Welcome >&2; echo '{error}' >&2; exit {status}")
    with pytest.raises(StepError, match=rf"^there: the agent cannot start: {re.escape(error)}; `python` of") as caught:
        ask(one)
    assert (one.launches, caught.value.cause) == (1, Cause.CONFIGURATION)
    assert str(caught.value).endswith("printed before it:\n  Welcome")


@pytest.mark.parametrize(
    "error",
    [
        "ssh: Could not resolve hostname far: Temporary failure in name resolution",
        "identity_file type 0: No such file or directory\nConnection reset by peer",
    ],
)
def test_a_temporary_error_is_tried_again(machine: Machines, error: str) -> None:
    one = machine(f"echo '{error}' >&2; exit 255")
    assert ask(one) == "absent"
    assert one.launches == 2


def test_a_final_error_of_a_host_that_was_reached_before_is_tried_again(machine: Machines) -> None:
    """A machine that is booting may refuse logins, and may not have mounted the home directories yet."""
    one = machine()
    there = one.start("sleep", "60")
    one.answer(DENIED, DENIED)
    one.disconnect()
    wait_for(lambda: one.launches == 4, "another connection")
    assert ask(one) == "absent"
    assert one.host.book[there].status.state is AttemptState.RUNNING


def test_a_connection_that_ends_after_its_first_message_is_tried_again(machine: Machines) -> None:
    one = machine(*[HELLO] * 3)
    assert ask(one) == "absent"
    assert one.launches == 4


def test_a_cancelled_scope_ends_the_wait_and_later_calls(machine: Machines) -> None:
    one = machine(*[REFUSED] * 99)

    def wait() -> None:
        with cancellation.entered(scope), pytest.raises(Cancelled, match="enough"):
            ask(one)

    scope = cancellation.CancelScope()
    with ThreadPoolExecutor(5) as threads:
        waiting = [threads.submit(wait) for _ in range(5)]
        wait_for(lambda: one.launches >= 2, "a second try")
        scope.cancel("enough")
        before = one.launches
        for each in waiting:
            each.result(30)
    assert one.launches <= before + 1


def test_a_host_that_is_closed_while_it_connects_has_no_connection(machine: Machines) -> None:
    one = machine(f"sleep 0.5; {HELLO}; cat > /dev/null; true")
    with ThreadPoolExecutor() as threads:
        asking = threads.submit(ask, one)
        wait_for(lambda: one.launches, "the connection")
        one.host.close()
        with pytest.raises(StepError):
            asking.result(30)
    assert processes.marked(one.mark) == []


def test_a_submission_without_an_answer_may_have_started_the_workload(machine: Machines) -> None:
    one = machine(f"{HELLO}; head -c 20000 > /dev/null; exit", *[REFUSED] * 99)
    with pytest.raises(
        SubmissionUnknown, match=r"^the workload may have been started; there: the host cannot be reached"
    ):
        one.start("true", timeout=3)


def test_a_refusal_after_a_submission_without_an_answer_proves_nothing(machine: Machines) -> None:
    refuse = """sed -un 's/^{"id": \\([0-9]*\\), .*/{"id": \\1, "error": "No space left on device"}/p'"""
    one = machine(f"{HELLO}; head -c 20000 > /dev/null; exit", f"{HELLO}; {refuse}")
    with pytest.raises(SubmissionUnknown, match="the workload may have been started; there: No space left"):
        one.start("true")


def test_an_attempt_is_unreachable_after_its_timeout(machine: Machines) -> None:
    one = machine()
    there = one.start("sleep", "60", timeout=2)
    one.answer(*[REFUSED] * 99)
    one.disconnect()
    wait_for(lambda: one.notified, "a notification")
    status = one.host.book[there].status
    assert (status.state, one.notified) == (AttemptState.UNREACHABLE, ["cell"])
    assert "Connection refused" in status.message


def test_a_closed_host_reports_nothing(machine: Machines) -> None:
    one = machine()
    there = one.start("sleep", "60", timeout=60)
    one.answer(*[REFUSED] * 99)
    one.disconnect()
    wait_for(lambda: one.launches > 1, "another try")
    one.host.close()
    wait_for(lambda: not [t for t in threading.enumerate() if t.name == "reconnect-there"], "the end of the tries")
    assert one.notified == []
    assert one.host.book[there].status.state is AttemptState.RUNNING


def test_an_attempt_that_deleted_its_directory_during_an_outage_is_lost_and_ended(machine: Machines) -> None:
    one = machine()
    there = one.start("sleep", "60")
    one.answer(REFUSED)
    shutil.rmtree(there)
    one.disconnect()
    wait_for(lambda: one.notified, "the end of the attempt")
    outcome = one.host.book[there].status.outcome
    assert outcome is not None
    assert outcome.ended_by is EndedBy.LOST
    wait_for(lambda: not processes.marked(Path(there)), "the end of all its processes")


def test_an_attempt_that_is_confirmed_during_a_watch_request_is_not_lost(
    machine: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = machine()
    attempt = one.host.book.add(host_attempt(tmp_path))
    requests = []

    def request(op: str, _timeout: float, **_fields: Any) -> dict[str, Any]:
        requests.append(op)
        one.host.book.change(attempt, AttemptStatus(AttemptState.RUNNING))
        return {"states": {"/there": {"state": "absent"}}}

    monkeypatch.setattr(one.host.connection, "request", request)
    one.host._watch_again()
    assert requests == ["watch"]
    assert attempt.status.state is AttemptState.RUNNING


def test_an_attempt_that_is_not_on_the_host_is_not_watched(machine: Machines, tmp_path: Path) -> None:
    one = machine()
    assert not one.host.watch(host_attempt(tmp_path, str(tmp_path / "nobody")))
    one.disconnect()
    time.sleep(0.2)
    assert (one.launches, one.notified) == (1, [])


def test_a_copy_of_a_log_has_no_gap(tmp_path: Path) -> None:
    """A piece that begins after the end of the copy is left out."""
    log = tmp_path / "stdout.log"
    for offset, piece in ((0, b"0123"), (6, b"67"), (2, b"2345"), (6, b"6")):
        host_attempts._write_at(log, offset, base64.b64encode(piece).decode(), most=8)
    assert log.read_bytes() == b"0123456"


def test_a_log_copy_that_cannot_be_written_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    host_attempts._write_at(tmp_path / "nowhere/stdout.log", 0, "", most=8)
    assert "nowhere/stdout.log cannot be written: " in caplog.text


def log_event(**fields: Any) -> dict[str, Any]:
    return {"event": "log", "directory": "/there", "stream": "stdout", "offset": 0, "data": "YQ==", **fields}


@pytest.mark.parametrize(
    "event",
    [
        log_event(stream="../../settings"),
        log_event(stream="outcome"),
        log_event(stream=["stdout"]),
        log_event(offset=-1),
        log_event(offset="0"),
        log_event(directory=["/there"]),
        log_event(data=5),
        {"event": "log"},
        {"event": "ended", "directory": "/there", "outcome": "good"},
        {"event": "ended", "directory": {}, "outcome": None},
    ],
)
def test_an_event_that_no_agent_sends_is_ignored(
    machine: Machines, tmp_path: Path, caplog: pytest.LogCaptureFixture, event: dict[str, Any]
) -> None:
    one = machine()
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    one.host.book.add(host_attempt(mirror))
    one.host._handle_event(event)
    one.host._handle_event(event)
    assert list(mirror.iterdir()) == []
    assert one.host.book["/there"].status.state is AttemptState.SUBMITTED
    assert [record.message for record in caplog.records] == [
        "there: the agent sends malformed events, which are ignored"
    ]


def test_the_copy_of_a_log_has_its_limit(machine: Machines, tmp_path: Path) -> None:
    one = machine()
    one.host.book.add(host_attempt(tmp_path, log_bytes=10))
    piece = base64.b64encode(bytes(1 << 16)).decode()
    for number in range(4):
        one.host._handle_event(log_event(offset=number << 16, data=piece))
    assert (tmp_path / "stdout.log").stat().st_size == 10 + END_BYTES


@pytest.mark.parametrize(
    ("op", "answer"),
    [
        ("state", {}),
        ("state", {"state": "victory"}),
        ("state", {"state": []}),
        ("watch", {"states": [1]}),
        ("watch", {"states": {"/there": "running"}}),
        ("list", {"files": [1], "logs": {}}),
        ("list", {"files": ["a"], "logs": {"../x": 1}}),
        ("list", {"files": ["a"]}),
    ],
)
def test_an_answer_that_no_agent_gives_is_an_error_of_the_host(
    machine: Machines, op: str, answer: dict[str, Any]
) -> None:
    one = machine(f"{HELLO}; while read -r line; do echo '{json.dumps({'id': 1, **answer})}'; done")
    with pytest.raises(StepError, match=f"^there: the agent answers `{op}` with a malformed message$"):
        one.host.connection.request(op, 5)


@pytest.mark.parametrize("home", ["relative", "~", "/two\nlines", "/" + "h" * 5000])
def test_an_invalid_home_directory_is_an_error_of_the_host(machine: Machines, home: str) -> None:
    hello = json.dumps({"event": "hello", "home": home})
    one = machine(f"printf '%s\\n' '{hello}'; cat > /dev/null")
    with pytest.raises(StepError, match=r"^there: the agent reports an invalid home directory: "):
        one.host.connection.home(5)


def test_a_status_tells_whether_processes_may_remain(machine: Machines, tmp_path: Path) -> None:
    one = machine()
    one.host.book.add(host_attempt(tmp_path))
    one.host._handle_event({"event": "ended", "directory": "/there", "outcome": None, "may_remain": True})
    outcome = one.host.book["/there"].status.outcome
    assert outcome is not None
    assert (outcome.ended_by, outcome.may_remain) == (EndedBy.LOST, True)
