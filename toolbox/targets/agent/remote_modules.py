"""The program on an SSH host that executes Ansible modules in forks of a running interpreter.

The login shell of the host starts it in the same way as ansible-core starts the interpreter for a module. So its
environment, its working directory, its limits and its signals are those of a module, and the forks keep them. The
program relays the requests of `toolbox.ansible.ssh_relay` to a `module_server`, until its standard input is closed. It
runs on targets: it needs Linux and Python 3.8, and imports only the standard library.
"""

from __future__ import annotations

import array
import os
import shutil
import socket
import sys
import tempfile
import threading
from typing import Dict, Optional, Set, Tuple

from toolbox.ground.kit import fork_server
from toolbox.ground.kit.streams import write_all
from toolbox.targets.agent import module_server, startup_files
from toolbox.targets.agent.relay import HELLO, Relay

_INPUT, _OUTPUT = 0, 1
_STDOUT, _STDERR = 1, 2
# Files that login shells read at their start, besides those of `startup_files`.
_SHELL_FILES = (
    "/etc/bash.bashrc",
    "/etc/csh.cshrc",
    "/etc/fish/config.fish",
    "/etc/zsh/zshenv",
    "/etc/zshenv",
)


def main() -> None:
    """Serve until the standard input is closed. In a fork, execute a module, and raise `SystemExit`."""
    sys.path.insert(0, "")  # where Python looks first if a program comes from the standard input
    directory = tempfile.mkdtemp(prefix="topgallant_modules-")  # not the prefix of `system.scratch`
    try:
        fork = _serve(directory)
    except OSError:  # the connection or the module server has ended
        fork = None
    if fork is not None:
        _hide_agent()
        module_server.execute(fork.payload)
    shutil.rmtree(directory, ignore_errors=True)
    os._exit(0)  # although a thread may be writing


def _hide_agent() -> None:
    """Remove the modules of the agent, and the finder of their sources, from what the module can import."""
    package = sys.modules["toolbox"]
    assert package.__spec__ is not None, "importlib sets it"
    sys.meta_path.remove(package.__spec__.loader)  # type: ignore[arg-type]  # `bootstrap` has one class for both
    for name in [name for name in sys.modules if name.partition(".")[0] == "toolbox"]:
        del sys.modules[name]


def _serve(directory: str) -> Optional[fork_server.Fork]:
    """Return a request in each fork of the module server, and None in the other processes, at their end."""
    path = os.path.join(directory, "requests.sock")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(socket.SOMAXCONN)
    lifeline, write_end = os.pipe()
    server = os.fork()
    if server == 0:
        os.close(write_end)
        # The session can end while the module server runs: the server has only its standard error.
        _replace(_INPUT, lifeline)
        _replace(_OUTPUT, os.open(os.devnull, os.O_WRONLY))
        start = _Start()
        return module_server.serve(listener, directory, (), mark=None, check=start.refuse_if_changed)
    listener.close()
    os.close(lifeline)
    try:
        _relay(path)
    finally:
        _replace(_OUTPUT, os.open(os.devnull, os.O_WRONLY))  # do not report modules that are ended here
        os.close(write_end)
        os.waitpid(server, 0)
    return None


def _relay(path: str) -> None:
    """Relay requests to the socket of the module server until the standard input is closed."""
    write_all(_OUTPUT, HELLO)
    relay = _RemoteRelay(path)
    threading.Thread(target=_forward, args=(relay,), daemon=True).start()
    with open(_INPUT, "rb", closefd=False) as source:
        relay.receive(source)


def _forward(relay: Relay) -> None:
    try:
        relay.forward()
    except OSError:  # the connection has ended, so the standard input is closed too
        pass


def _replace(number: int, descriptor: int) -> None:
    os.dup2(descriptor, number)
    os.close(descriptor)


class _RemoteRelay(Relay):
    """The side of the host, which connects to the module server.

    Args:
        path: the socket of the module server.
    """

    def __init__(self, path: str) -> None:
        super().__init__(_OUTPUT)
        self._path = path
        self._opened: Set[int] = set()

    def handle(self, number: int, stream: int, content: bytes) -> None:
        """Open the connection with its first frame."""
        if number in self._opened:
            super().handle(number, stream, content)
        else:
            self._opened.add(number)
            self._open(number, content)

    def _open(self, number: int, content: bytes) -> None:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self._path)
        nothing = os.open(os.devnull, os.O_RDONLY)
        pipes: Dict[int, Tuple[int, int]] = {stream: os.pipe() for stream in (_STDOUT, _STDERR)}
        streams = [nothing, *(write_end for _, write_end in pipes.values())]
        try:
            sent = connection.sendmsg([content], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", streams))])
            connection.sendall(content[sent:])
        except OSError:  # the server has refused this request without reading it, and its answer is forwarded
            pass
        for descriptor in streams:
            os.close(descriptor)
        self.add(number, connection, {stream: read_end for stream, (read_end, _) in pipes.items()}, {})


class _Start:
    """What an interpreter and a login shell read at their start."""

    def __init__(self) -> None:
        self._interpreter = startup_files.Interpreter()
        self._state = self._read()

    def refuse_if_changed(self, fork: fork_server.Fork) -> None:
        """Refuse a request if a new session would start in another way than the session of this program."""
        if self._interpreter.has_changed() or self._read() != self._state:
            fork.refuse("a file that a shell or the interpreter reads at its start has changed")

    @staticmethod
    def _read() -> Tuple[Dict[str, str], Dict[str, startup_files.Version]]:
        return startup_files.digests(), {path: startup_files.version(path) for path in _SHELL_FILES}
