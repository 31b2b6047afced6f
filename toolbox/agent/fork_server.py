"""Executes requests in forks of a process that has already imported what they need.

A client connects to a Unix socket, and sends a JSON object, a payload, and three open files for the standard input, the
standard output and the standard error. The server forks for each connection. The fork reads the request, answers with
its process id, and then executes the request in a process session of its own. When the fork has ended, the server sends
its status. If the client closes the connection before that, or if the lifeline of the server is closed, the server ends
the fork and its descendants.

The fork gets the environment, the working directory, the file mode mask, the resource limits and the ignored signals of
the request. If the request has no environment, the fork keeps all of this from the server. The module runs on targets
too: it needs Linux and Python 3.8, and imports only the standard library.
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
from typing import Any, Callable, Dict, List, NamedTuple, NoReturn, Optional

from toolbox.agent import tree

RESERVED = "TOPGALLANT_RESERVED"
"""A variable in the environment that the server is started with. It reserves memory for the mark of a fork."""
RESERVED_BYTES = 8192
CONFIRMATION = b"!"
"""What the client sends after it has received the process id."""
GRACE_SECONDS = 5.0
_STREAMS = (0, 1, 2)
_POLL_SECONDS = 0.1
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
        _send(self.connection, {"refused": reason})
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


class _Child:
    """A fork that has not ended."""

    def __init__(self, pid: int, connection: socket.socket) -> None:
        self.pid = pid
        self.connection = connection
        self.kill_at: Optional[float] = None  # when to send SIGKILL, on the monotonic clock

    def signal_tree(self, signal_number: int) -> None:
        for pid in [self.pid, *tree.descendants(self.pid)]:
            tree.send(pid, signal_number)

    def end(self) -> None:
        """Send SIGTERM now, and SIGKILL later."""
        if self.kill_at is None:
            self.kill_at = time.monotonic() + GRACE_SECONDS
            self.signal_tree(signal.SIGTERM)


class _Server:
    def __init__(self, listener: socket.socket, lifeline: int, on_end: Callable[[], object]) -> None:
        self._listener = listener
        self._lifeline = lifeline
        self._on_end = on_end
        self._children: Dict[int, _Child] = {}
        # The handler does nothing, but with it, a SIGCHLD writes a byte into the pipe, which ends the wait of `poll`.
        self._wake, wake_end = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(wake_end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._previous_wake_end = signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        self._wake_end = wake_end
        self._is_ending = False

    def loop(self) -> Optional[Fork]:
        while not self._is_ending or self._children:
            ready = self._wait()
            self._reap()
            if self._lifeline in ready:
                self._is_ending = True
            for child in list(self._children.values()):
                if self._is_ending or child.connection.fileno() in ready:
                    child.end()
                if child.kill_at is not None and time.monotonic() >= child.kill_at:
                    child.signal_tree(signal.SIGKILL)
            if self._listener.fileno() in ready and not self._is_ending:
                fork = self._fork()
                if fork is not None:
                    return fork
        return None

    def leave(self) -> None:
        """Close the descriptors of the server, in the server and in each fork."""
        signal.set_wakeup_fd(self._previous_wake_end)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for child in self._children.values():
            child.connection.close()
        for descriptor in (self._wake, self._wake_end, self._lifeline):
            os.close(descriptor)
        self._listener.close()

    def _wait(self) -> List[int]:
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        if not self._is_ending:
            poll.register(self._listener, select.POLLIN)
            poll.register(self._lifeline, select.POLLIN)
        for child in self._children.values():
            if child.kill_at is None:
                poll.register(child.connection, select.POLLRDHUP)
        is_killing = any(child.kill_at is not None for child in self._children.values())
        ready = [descriptor for descriptor, _ in poll.poll(_POLL_SECONDS * 1000 if is_killing else None)]
        if self._wake in ready:
            os.read(self._wake, 4096)
        return ready

    def _reap(self) -> None:
        while self._children:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            child = self._children.pop(pid, None)
            if child is not None:
                with child.connection:
                    _send(child.connection, {"status": status})
                self._on_end()

    def _fork(self) -> Optional[Fork]:
        connection, _ = self._listener.accept()
        server = os.getpid()
        pid = os.fork()
        if pid:
            self._children[pid] = _Child(pid, connection)
            return None
        tree.die_with_parent()
        if os.getppid() != server:  # the server was killed before this process could ask for the signal
            os._exit(1)
        os.setsid()
        request = _receive(connection)
        if request is None:  # the client has ended
            os._exit(1)
        return request


def client_state() -> Dict[str, Any]:
    """Return what a fork takes over from its client, beside the environment and the working directory."""
    ignored = [
        int(number)
        for number in signal.valid_signals()
        # `subprocess` restores the signals that Python itself ignores.
        if number not in (signal.SIGPIPE, signal.SIGXFSZ) and signal.getsignal(number) is signal.SIG_IGN
    ]
    return {"umask": _umask(), "limits": _limits(), "ignored_signals": ignored}


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

    The memory belongs to the environment that the process was started with. `begin` replaces all of these variables, so
    that the C library no longer points to this memory (`setproctitle` of PostgreSQL does the same).

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
