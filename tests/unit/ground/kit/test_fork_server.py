"""A server executes requests in forks: their state is that of the client, and none of them outlives its owner."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import IO, Any

import pytest

from toolbox.ground.kit import fork_server
from toolbox.ground.model.errors import Interrupted
from toolbox.ground.system import fork_connections, processes, signals
from toolbox.ground.system.fork_connections import Connection, Refused
from toolbox.ground.system.fork_servers import ForkServer

ROOT = Path(__file__).parents[4]
MARK = "TEST_MARK"
SERVER = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from toolbox.ground.kit import fork_server

fork_server.GRACE_SECONDS = 0.2
exec(sys.argv.pop(1))
fork = fork_server.serve(fork_server.listener_from_arguments(), 0)
if fork is not None:
    if fork.message.get("refuse"):
        fork.refuse(fork.message["refuse"])
    fork.begin("TEST_MARK")
    exec(compile(fork.payload, "request", "exec"), {})
"""
STATE = """
import json, os, resource, signal, subprocess, sys, time
with open("/proc/self/environ") as stream:
    shown = stream.read()
with open("/proc/self/status") as stream:
    status = dict(line.strip().split(":", 1) for line in stream)
json.dump({
    "env": dict(os.environ), "cwd": os.getcwd(), "umask": os.umask(0),
    "files": resource.getrlimit(resource.RLIMIT_NOFILE), "nice": os.nice(0), "processors": len(os.sched_getaffinity(0)),
    "ignored": [int(n) for n in signal.valid_signals() if signal.getsignal(n) is signal.SIG_IGN],
    "int": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
    "blocked": int(status["SigBlk"], 16), "session": os.getsid(0) == os.getpid(), "shown": shown,
    "descriptors": sorted(map(int, os.listdir("/proc/self/fd")))[:-1], "pid": os.getpid(), "zone": time.tzname[0],
    "inherited": subprocess.run(["env"], stdout=subprocess.PIPE, check=True).stdout.decode().splitlines(),
}, sys.stdout)
"""
WAIT = b"""
import signal
print("begun", flush=True)
signal.pause()
"""
WAIT_WITH_CHILD = (
    b"""
import os
if os.fork() == 0:
    os.setsid()
"""
    + WAIT
)


IGNORE = b"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
CHILD_IGNORES = b"""
import os, signal
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("begun", flush=True)
signal.pause()
"""
# The server cannot find the child process in its first search.
LATE_CHILD_IGNORES = b"""
import os, signal
def fork(*_):
    if os.fork():
        os._exit(0)
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGTERM, fork)
print("begun", flush=True)
while True:
    signal.pause()
"""
FEW_DESCRIPTORS = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (15, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
"""
SECOND_SEARCH_MISSES = """
from toolbox.ground.kit import process_tree
descendants = process_tree.descendants
results = [descendants, lambda root: {}]
process_tree.descendants = lambda root: (results.pop(0) if results else descendants)(root)
"""
NO_FORK = """
import os
def fork():
    raise BlockingIOError(11, "no more processes")
os.fork = fork
"""


class Served:
    """A running server, and the requests that a test sends to it."""

    def __init__(self, server: ForkServer, stack: ExitStack) -> None:
        self.server = server
        self._stack = stack

    @property
    def process(self) -> processes.Server:
        """The process of the server, which has been started."""
        assert self.server._process is not None
        return self.server._process

    def connect(self, payload: bytes, **message: Any) -> tuple[Connection, IO[bytes]]:
        """Send a request. Return its connection and its standard output."""
        read_end, write_end = os.pipe()
        output = self._stack.enter_context(os.fdopen(read_end, "rb"))
        request = {"env": {MARK: "mark"}, "cwd": "/", **message}
        with os.fdopen(write_end, "wb"), Path(os.devnull).open("rb") as nothing:
            connection = Connection(self.server.path, request, payload, [nothing.fileno(), write_end, write_end])
        return self._stack.enter_context(closing(connection)), output

    def begun(self, payload: bytes = WAIT, processes: int = 1) -> tuple[Connection, IO[bytes]]:
        """Start processes that print a line and wait."""
        connection, output = self.connect(payload)
        assert [output.readline() for _ in range(processes)] == [b"begun\n"] * processes
        return connection, output


@pytest.fixture
def prepare() -> str:
    """Return what the server executes at its start."""
    return ""


@pytest.fixture
def served(tmp_path: Path, prepare: str) -> Iterator[Served]:
    with ExitStack() as stack:
        args = [sys.executable, "-c", SERVER, str(ROOT), prepare]
        server = ForkServer(args, {"PATH": os.defpath, "SERVERS": "own"}, tmp_path)
        stack.callback(server.close)
        server.launch()
        yield Served(server, stack)


def wait_for_end(output: IO[bytes]) -> None:
    """Wait until no process has the write end of a pipe."""
    assert select.select([output], [], [], 30)[0], "a process holds the pipe"
    assert output.read() == b""


def test_a_fork_has_the_state_of_its_client(served: Served, tmp_path: Path) -> None:
    env = {MARK: "a mark", "TZ": "UTC+3", "GREETING": "é hello", "PATH": os.defpath}
    source = f"""
import json, os, resource, signal, sys
sys.path.insert(0, {str(ROOT)!r})
from toolbox.ground.system.fork_connections import Connection
os.umask(0o027)
os.nice(3)
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
resource.setrlimit(resource.RLIMIT_NOFILE, (123, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)  # a shell starts programs in the background with this signal ignored
message = {{"env": {env!r}, "cwd": {str(tmp_path)!r}}}
connection = Connection({str(served.server.path)!r}, message, {STATE.encode()!r}, [0, 1, 2])
assert connection.status() == 0
"""
    output = subprocess.run([sys.executable, "-c", source], stdout=subprocess.PIPE, check=True, timeout=60).stdout
    state = json.loads(output)
    assert state["env"] == env
    assert set(state["inherited"]) == {f"{name}={value}" for name, value in env.items()}
    assert (state["cwd"], state["umask"], state["files"][0]) == (str(tmp_path), 0o027, 123)
    python = {signal.SIGPIPE, signal.SIGXFSZ}
    assert set(state["ignored"]) == {signal.SIGUSR1, signal.SIGHUP, *python}
    assert (state["nice"], state["processors"]) == (min(os.nice(0) + 3, 19), 1)
    assert (state["int"], state["blocked"], state["session"]) == (True, 0, True)
    assert state["shown"].strip("\0") == f"{MARK}=a mark"
    assert (state["descriptors"], state["zone"]) == ([0, 1, 2], "UTC")


def test_requests_do_not_see_each_other_and_have_their_own_status(served: Served) -> None:
    change = b"import os, signal; os.environ['X'] = '1'; os.chdir('/tmp'); os.umask(0o777); os._exit(7)"
    changed, _ = served.connect(change)
    assert changed.status() == 7 << 8
    shown, output = served.connect(STATE.encode())
    state = json.loads(output.read())
    assert (shown.status(), state["cwd"], state["env"], state["pid"]) == (0, "/", {MARK: "mark"}, shown.pid)
    assert state["umask"] != 0o777
    killed, _ = served.connect(b"import os; os.kill(os.getpid(), 9)")
    assert killed.status() == signal.SIGKILL


def test_the_end_of_a_process_is_awaited_for_a_time(served: Served) -> None:
    connection, _ = served.begun()
    assert connection.status(timeout=0.01) is None
    os.kill(connection.pid, signal.SIGTERM)
    assert connection.status() == signal.SIGTERM


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"refuse": "not today"}, "not today"),
        ({"cwd": "/there/is/nothing"}, "FileNotFoundError"),
        ({"env": {MARK: "x" * fork_server.RESERVED_BYTES * 2}}, "the reserved environment is too small"),
    ],
)
def test_a_server_refuses_what_it_cannot_execute(served: Served, message: dict[str, Any], reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        served.connect(b"", **message)
    assert served.connect(b"")[0].status() == 0


@pytest.mark.parametrize(
    "content", [b"", b"GET / HTTP/1.1\n\n", b"5 5\nhello", b"\xff" * 70_000, b"2 0\n{}", b"x y\n", b"-1 0\n"]
)
def test_a_server_survives_other_bytes(served: Served, content: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(served.server.path))
        client.sendall(content)
        client.shutdown(socket.SHUT_WR)
        client.settimeout(30)
        with contextlib.suppress(ConnectionResetError):  # the server has not read all
            assert b"pid" not in client.recv(4096)
    assert served.connect(b"")[0].status() == 0


def test_a_client_that_disconnects_ends_its_process_with_the_descendants(served: Served) -> None:
    connection, output = served.begun(WAIT_WITH_CHILD, processes=2)
    other, _ = served.begun()
    connection.close()
    wait_for_end(output)
    assert other.status(timeout=0) is None, "the process of another client goes on"


def test_a_process_that_ignores_sigterm_is_killed(served: Served) -> None:
    connection, output = served.begun(IGNORE + WAIT_WITH_CHILD, processes=2)
    connection.close()
    wait_for_end(output)


def test_processes_end_with_the_owner_of_the_server(served: Served) -> None:
    connection, output = served.begun(WAIT_WITH_CHILD, processes=2)
    served.server.close()
    wait_for_end(output)
    assert connection.status() == signal.SIGTERM
    with pytest.raises(Refused):
        served.connect(b"")


@pytest.mark.parametrize("payload", [CHILD_IGNORES, LATE_CHILD_IGNORES], ids=["early", "late"])
def test_descendants_end_with_the_owner_of_the_server(served: Served, payload: bytes) -> None:
    _, output = served.begun(payload)
    served.server.close()
    wait_for_end(output)


@pytest.mark.parametrize("prepare", [SECOND_SEARCH_MISSES])
def test_descendants_end_although_a_search_misses_them(served: Served) -> None:
    _, output = served.begun(CHILD_IGNORES)
    served.server.close()
    wait_for_end(output)


@pytest.mark.parametrize("payload", [CHILD_IGNORES, LATE_CHILD_IGNORES], ids=["early", "late"])
def test_descendants_end_with_an_owner_who_closes_the_connection_first(served: Served, payload: bytes) -> None:
    connection, output = served.begun(payload)
    connection.close()
    served.server.close()
    wait_for_end(output)


def test_a_descendant_that_ignores_sigterm_is_killed(served: Served) -> None:
    connection, output = served.begun(CHILD_IGNORES)
    connection.close()
    wait_for_end(output)


def test_a_background_process_goes_on_after_the_end_of_its_request(served: Served) -> None:
    background = b"import os\nif os.fork(): os._exit(0)\nprint(os.getpid(), flush=True)\n"
    connection, output = served.connect(background + WAIT)
    pid = int(output.readline())
    assert (connection.status(), output.readline()) == (0, b"begun\n")
    ended, its_output = served.begun()
    ended.close()
    wait_for_end(its_output)
    served.server.close()
    os.kill(pid, signal.SIGTERM)
    wait_for_end(output)


def test_processes_end_with_the_server(served: Served) -> None:
    connection, output = served.begun()
    served.process.kill()
    wait_for_end(output)
    assert connection.status() == signal.SIGKILL
    with pytest.raises(Refused):
        served.connect(b"")


def test_a_server_that_cannot_start_refuses_with_its_messages(tmp_path: Path) -> None:
    server = ForkServer([sys.executable, "-c", "import sys; sys.exit('no way')"], {}, tmp_path)
    with closing(server), pytest.raises(Refused, match="no way"):
        server.start({}, {}, tmp_path)


def test_requests_wait_for_the_start_of_the_server(tmp_path: Path) -> None:
    args = [sys.executable, "-c", SERVER, str(ROOT), ""]
    with closing(ForkServer(args, {"PATH": os.defpath}, tmp_path)) as server, ExitStack() as stack:
        assert not server.was_killed
        timer = threading.Timer(0.1, server.launch)
        stack.callback(timer.join)
        timer.start()
        assert Served(server, stack).connect(b"")[0].status() == 0


def test_requests_are_refused_if_the_server_cannot_be_started(tmp_path: Path) -> None:
    with closing(ForkServer([str(tmp_path / "missing")], {}, tmp_path)) as server:
        with pytest.raises(FileNotFoundError):
            server.launch()
        with pytest.raises(Refused):
            server.start({}, {}, tmp_path)


def test_a_closed_server_does_not_start(tmp_path: Path) -> None:
    server = ForkServer([sys.executable, "-c", "print('started')"], {}, tmp_path)
    server.close()
    server.launch()
    assert server.messages() == ""
    server.close()
    assert not server.was_killed


@pytest.mark.parametrize("prepare", [FEW_DESCRIPTORS])
def test_a_server_with_too_many_connections_refuses_and_continues(served: Served) -> None:
    running, _ = served.begun()
    with ExitStack() as stack:
        clients = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(20)]
        for client in clients:
            client.connect(str(served.server.path))
        with pytest.raises(Refused, match="too many connections"):
            served.connect(b"")
    os.kill(running.pid, signal.SIGTERM)
    assert running.status() == signal.SIGTERM, "the server has not ended"


@pytest.mark.parametrize("prepare", [NO_FORK])
def test_a_server_that_cannot_fork_refuses_and_continues(served: Served) -> None:
    for _ in range(2):
        with pytest.raises(Refused, match="no more processes"):
            served.connect(b"")


@pytest.mark.parametrize("size", [0, 1 << 20])
def test_a_server_that_does_not_answer_is_given_up(served: Served, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    served.process.send_signal(signal.SIGSTOP)
    with monkeypatch.context() as patches:
        patches.setattr(fork_connections, "_START_SECONDS", 0.1)
        with pytest.raises(Refused, match=r"does not answer: (no answer after 0\.1 s|timed out)"):
            served.connect(b"#" * size)
    served.process.send_signal(signal.SIGCONT)
    assert served.connect(b"")[0].status() == 0


def test_an_answer_without_its_end_is_the_loss_of_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host can send it, because a link relays the answers."""
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        with ExitStack() as stack:

            def answer() -> None:
                server, _ = listener.accept()
                stack.enter_context(server).recv(1 << 16)
                server.sendall(b'{"pid": 1}\n')
                server.recv(1)
                server.sendall(b'{"status"')

            thread = threading.Thread(target=answer, daemon=True)
            thread.start()
            monkeypatch.setattr(fork_connections, "_START_SECONDS", 0.5)
            connection = Connection(path, {}, b"", [0, 1, 2])
            assert connection.status() == signal.SIGKILL
            assert connection.lost == ""
            thread.join()


def test_a_signal_ends_the_wait_for_a_server(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    served.process.send_signal(signal.SIGSTOP)
    monkeypatch.setattr(signals._state, "received", [signal.SIGINT])
    with pytest.raises(Interrupted):
        served.connect(b"")
    served.process.send_signal(signal.SIGCONT)


def test_the_end_of_a_process_is_awaited_with_many_open_files(served: Served) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    try:
        with ExitStack() as stack:
            for _ in range(1100):  # `select.select` can wait for 1,024
                stack.callback(os.close, os.dup(0))
            connection, _ = served.connect(b"")
            assert connection.status(timeout=30) == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_many_requests_at_the_same_time(served: Served) -> None:
    statuses: list[int] = []

    def request(number: int) -> None:
        connection, _ = served.connect(b"import os; os._exit(int(os.environ['NUMBER']))", env={"NUMBER": str(number)})
        statuses.append(connection.status() or 0)

    threads = [threading.Thread(target=request, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [number << 8 for number in range(20)]


def test_a_large_request_arrives_unchanged(served: Served) -> None:
    payload = b"import sys; sys.exit(len('" + b"x" * 3_000_000 + b"') != 3_000_000)"
    assert served.connect(payload, more="é" * 100_000)[0].status() == 0
