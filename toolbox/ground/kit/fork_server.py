"""Executes requests in forks of a process that has already imported what they need.

A client connects to a Unix socket, and sends a JSON object, a payload, and three open files for the standard input, the
standard output and the standard error. The server forks for each connection. The fork reads the request, answers with
its process id, and then executes the request in a process session of its own. When the fork has ended, the server sends
its status. If the client closes the connection before that, the server ends the fork and its descendants. If the
lifeline of the server is closed, the server ends all its descendants, and then itself. If a fork is not possible, for
example because the server has too many connections, the server refuses the request, and continues.

The fork gets the environment, the working directory, the file mode mask, the resource limits, the niceness, the
processors and the ignored signals of the client. If the request has no environment, the fork keeps all of this from the
server. The module runs on targets too: it needs Linux and Python 3.8, and imports only the standard library.
"""

from __future__ import annotations

import array
import ctypes
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from typing import Any, Callable, Dict, List, NamedTuple, NoReturn, Optional, Set

from toolbox.ground.kit import process_tree

RESERVED = "TOPGALLANT_RESERVED"
"""A variable in the environment that the server is started with. It reserves memory for the mark of a fork."""
RESERVED_BYTES = 8192
CONFIRMATION = b"!"
"""What the client sends after it has received the process id."""
GRACE_SECONDS = 5.0
_KILL_SECONDS = 2.0  # how long SIGKILL is repeated; a process of another user would never end
_STREAMS = (0, 1, 2)
_POLL_SECONDS = 0.1
# The number of descriptors that a server keeps free for the files that it opens itself.
_FREE_DESCRIPTORS = 8
# Python sets its own handlers for these signals at its start.
_PYTHON_SIGNALS: Dict[int, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGPIPE: signal.SIG_IGN,
    signal.SIGXFSZ: signal.SIG_IGN,
}


class Fork(NamedTuple):
    """A request, in the process that executes it.

    Args:
        message: the JSON object of the request.
        payload: the bytes that follow the object.
        streams: the descriptors of the three open files.
    """

    connection: socket.socket
    message: Dict[str, Any]
    payload: bytes
    streams: List[int]

    def refuse(self, reason: str) -> NoReturn:
        """Tell the client why this process cannot execute the request, and end."""
        _refuse(self.connection, reason)
        os._exit(0)

    def begin(self, mark: Optional[str]) -> None:
        """Become the process of the request, and tell the client so. Refuse if this is not possible.

        Args:
            mark: the variable that `/proc/PID/environ` shows, by which other processes find this process; None if the
                requests have no environment.
        """
        try:
            if mark is not None:
                self._take_over_client(mark)
            time.tzset()
            for number, stream in zip(_STREAMS, self.streams):
                os.dup2(stream, number)
                os.close(stream)
        except (OSError, ValueError) as error:
            self.refuse(f"{type(error).__name__}: {error}")
        # The client may have given up. So the request is executed only after the client has confirmed it.
        _send(self.connection, {"pid": os.getpid()})
        if self.connection.recv(1) != CONFIRMATION:
            os._exit(1)
        self.connection.close()

    def _take_over_client(self, mark: str) -> None:
        _show_environment({mark: self.message["env"].get(mark, "")})
        os.environ.clear()
        os.environ.update(self.message["env"])
        os.chdir(self.message["cwd"])
        os.umask(self.message["umask"])
        _set_limits(self.message["limits"])
        _set_scheduling(self.message["niceness"], self.message["processors"])
        _set_signals(self.message["ignored_signals"])


def serve(listener: socket.socket, lifeline: int, *, on_end: Callable[[], object] = lambda: None) -> Optional[Fork]:
    """Fork for each connection. Return the request in each fork, and None in the server when the lifeline is closed.

    Args:
        listener: a listening Unix socket.
        lifeline: a descriptor, for example of a pipe, whose other end the owner of the server holds open.
        on_end: called in the server after a fork has ended.
    """
    server = _Server(listener, lifeline, on_end)
    try:
        return server.loop()
    finally:
        server.leave()


class _Ending:
    """The end of a process and of its descendants: first with SIGTERM, then with SIGKILL.

    This process must be the new parent of orphans, so that they stay its descendants.

    Args:
        root: the process; if it is this process, only its descendants are ended.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._members: Set[int] = set()
        self._terminated: Set[int] = set()
        self._kill_at = time.monotonic() + GRACE_SECONDS

    def signal(self, processes: Dict[int, process_tree.Process]) -> bool:
        """Send the signals that are due, and return whether processes are left.

        Args:
            processes: the descendants of this process; parents precede their children.
        """
        for pid, process in processes.items():
            if self._root in (pid, process.parent) or process.parent in self._members:
                self._members.add(pid)
        self._members.intersection_update(processes)
        now = time.monotonic()
        number = signal.SIGTERM if now < self._kill_at else signal.SIGKILL
        for pid in self._members - self._terminated if number == signal.SIGTERM else self._members:
            process_tree.send(pid, number)
        self._terminated |= self._members
        return bool(self._members) and now < self._kill_at + _KILL_SECONDS


class _Server:
    def __init__(self, listener: socket.socket, lifeline: int, on_end: Callable[[], object]) -> None:
        self._listener = listener
        self._lifeline = lifeline
        self._on_end = on_end
        self._connections: Dict[int, socket.socket] = {}  # of the forks, by their process ids
        self._endings: Dict[int, _Ending] = {}  # by the process ids of the forks
        # The handler does nothing, but with it, a SIGCHLD writes a byte into the pipe, which ends the wait of `poll`.
        self._wake, wake_end = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(wake_end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._previous_wake_end = signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        self._wake_end = wake_end

    def loop(self) -> Optional[Fork]:
        while True:
            ready = self._wait()
            if self._lifeline in ready:
                self._end_all()
                return None
            self._reap()
            self._continue_endings()
            if self._listener.fileno() in ready:
                fork = self._fork()
                if fork is not None:
                    return fork

    def _end_all(self) -> None:
        if not self._connections and not self._endings:
            return
        process_tree.adopt_orphans()
        ending = _Ending(os.getpid())
        give_up_at = time.monotonic() + GRACE_SECONDS + _KILL_SECONDS
        # A search may miss a process whose parent ends at this moment. The process is a child of this process then.
        while self._reap() and time.monotonic() < give_up_at:
            ending.signal(process_tree.descendants(os.getpid()))
            self._poll(_new_poll(), _POLL_SECONDS)

    def _continue_endings(self) -> None:
        if self._endings:
            processes = process_tree.descendants(os.getpid())
            self._endings = {pid: ending for pid, ending in self._endings.items() if ending.signal(processes)}
            process_tree.adopt_orphans(bool(self._endings))

    def leave(self) -> None:
        """Close the descriptors of the server, in the server and in each fork."""
        signal.set_wakeup_fd(self._previous_wake_end)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for connection in self._connections.values():
            connection.close()
        for descriptor in (self._wake, self._wake_end, self._lifeline):
            os.close(descriptor)
        self._listener.close()

    def _wait(self) -> Set[int]:
        """Return which of the listener and the lifeline are ready, and begin to end the forks of lost clients."""
        poll = _new_poll(self._listener.fileno(), self._lifeline)
        clients = {
            connection.fileno(): pid for pid, connection in self._connections.items() if pid not in self._endings
        }
        for descriptor in clients:
            poll.register(descriptor, select.POLLRDHUP)
        ready = self._poll(poll, _POLL_SECONDS if self._endings else None)
        lost = [pid for descriptor, pid in clients.items() if descriptor in ready]
        if lost:
            # If the owner was killed, the system closes the lifeline a moment after the connections.
            ready |= self._poll(_new_poll(self._lifeline), _POLL_SECONDS)
            process_tree.adopt_orphans()
            self._endings.update((pid, _Ending(pid)) for pid in lost)
        return ready

    def _poll(self, poll: select.poll, seconds: Optional[float]) -> Set[int]:
        """Return the descriptors that are ready. Wait no longer than until a child process has ended."""
        poll.register(self._wake, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(None if seconds is None else seconds * 1000)}
        if self._wake in ready:
            os.read(self._wake, 4096)
        return ready

    def _reap(self) -> bool:
        """Report the ends of forks to their clients, and return whether child processes are left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            connection = self._connections.pop(pid, None)
            if connection is not None:
                with connection:
                    _send(connection, {"status": status})
                self._on_end()

    def _fork(self) -> Optional[Fork]:
        connection, _ = self._listener.accept()
        if connection.fileno() >= resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _FREE_DESCRIPTORS:
            _refuse(connection, "the server of forks has too many connections")
            return None
        server = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            _refuse(connection, f"the server of forks cannot fork: {error}")
            return None
        if pid:
            self._connections[pid] = connection
            return None
        process_tree.die_with_parent()
        if os.getppid() != server:  # the server was killed before this process could ask for the signal
            os._exit(1)
        os.setsid()
        request = _receive(connection)
        if request is None:  # the client has ended
            os._exit(1)
        return request


def _new_poll(*descriptors: int) -> select.poll:
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return poll


def _refuse(connection: socket.socket, reason: str) -> None:
    with connection:
        _send(connection, {"refused": reason})


def client_state() -> Dict[str, Any]:
    """Return what a fork takes over from its client, beside the environment and the working directory."""
    ignored = [
        int(number)
        for number in signal.valid_signals()
        # `subprocess` restores the signals that Python itself ignores.
        if number not in (signal.SIGPIPE, signal.SIGXFSZ) and signal.getsignal(number) is signal.SIG_IGN
    ]
    return {
        "umask": _umask(),
        "limits": _limits(),
        "niceness": os.getpriority(os.PRIO_PROCESS, 0),
        "processors": sorted(os.sched_getaffinity(0)),
        "ignored_signals": ignored,
    }


def encode(message: Dict[str, Any], payload: bytes) -> bytes:
    """Return the bytes of a request. The first bytes must be sent together with the three descriptors."""
    text = json.dumps(message).encode()
    return b"%d %d\n" % (len(text), len(payload)) + text + payload


def _receive(connection: socket.socket) -> Optional[Fork]:
    """Return the request; None if the client has closed the connection."""
    descriptors = array.array("i")
    space = socket.CMSG_SPACE(len(_STREAMS) * descriptors.itemsize)
    content, ancillary, _, _ = connection.recvmsg(1 << 16, space, socket.MSG_CMSG_CLOEXEC)
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    with connection.makefile("rb") as stream:
        header, newline, rest = content.partition(b"\n")
        if not newline or len(descriptors) != len(_STREAMS):
            return None
        sizes = [int(word) for word in header.split()]
        rest += stream.read(sum(sizes) - len(rest))
    if len(rest) != sum(sizes):
        return None
    return Fork(connection, json.loads(rest[: sizes[0]]), rest[sizes[0] :], list(descriptors))


def _send(connection: socket.socket, message: Dict[str, Any]) -> None:
    try:
        connection.sendall(json.dumps(message).encode() + b"\n")
    except OSError:  # the client has ended
        pass


def _umask() -> int:
    # `os.umask` would change the mask for a moment, also for other threads.
    with open("/proc/self/status", "rb") as stream:
        return next(int(line.split()[1], 8) for line in stream if line.startswith(b"Umask:"))


def _limits() -> Dict[str, List[int]]:
    names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    return {name: list(resource.getrlimit(getattr(resource, name))) for name in names}


def _set_limits(limits: Dict[str, List[int]]) -> None:
    for name, (soft, hard) in limits.items():
        number = getattr(resource, name)
        if resource.getrlimit(number) != (soft, hard):
            resource.setrlimit(number, (soft, hard))


def _set_scheduling(niceness: int, processors: List[int]) -> None:
    if os.getpriority(os.PRIO_PROCESS, 0) != niceness:
        os.setpriority(os.PRIO_PROCESS, 0, niceness)
    if os.sched_getaffinity(0) != set(processors):
        os.sched_setaffinity(0, processors)


def _set_signals(ignored: List[int]) -> None:
    for number in signal.valid_signals():
        if number in (signal.SIGKILL, signal.SIGSTOP):
            continue
        handler = signal.SIG_IGN if number in ignored else _PYTHON_SIGNALS.get(number, signal.SIG_DFL)
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _show_environment(variables: Dict[str, str]) -> None:
    """Write variables over the environment that the kernel shows in `/proc/PID/environ`.

    The memory belongs to the environment that the process was started with. The variables are removed first, so that
    the C library no longer points to this memory (`setproctitle` of PostgreSQL does the same).

    Raises:
        ValueError: the memory is too small.
    """
    with open("/proc/self/stat", "rb") as stream:
        fields = stream.read().rpartition(b")")[2].split()
    start, end = int(fields[47]), int(fields[48])  # `env_start` and `env_end` in proc(5)
    content = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in variables.items())
    if len(content) + 1 >= end - start:
        raise ValueError("the reserved environment is too small")
    for name in list(os.environ):
        os.unsetenv(name)
    ctypes.memmove(start, content.ljust(end - start, b"\0"), end - start)


def listener_from_arguments() -> socket.socket:
    """Return the listening socket, whose descriptor is the last argument of a server program."""
    return socket.socket(fileno=int(sys.argv.pop()))


def replace_script_folder(folder: str) -> None:
    """Replace the folder of this server's program in the search path for modules, which Python puts there."""
    own = os.path.dirname(os.path.abspath(sys.argv[0]))
    if sys.path and sys.path[0] == own:
        sys.path[0] = folder
