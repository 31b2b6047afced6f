"""Executes the command lines of tests in forks of a process that has already imported Topgallant.

Most of the time of a short command line is the import of its modules. A fork has the arguments, the environment, the
working directory and the signal handlers of a new process, and a process session of its own. A command line is started
as a program if it has other variables that Python reads at its start. `tests/conftest.py` makes `toolbox.testing` use
this module, unless `TOPGALLANT_TEST_FORKS` is 0. Shell scripts use it by `tests/forked_program.py`.

The servers that make Ansible quick are such forks too, when a command line starts them: most of their start is the
import of libraries. They import most of Ansible themselves, because its settings depend on their environment.
"""

from __future__ import annotations

import atexit
import gc
import importlib.util
import io
import locale
import os
import pkgutil
import re
import runpy
import shlex
import signal
import site
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Final, NoReturn, TextIO, cast

from toolbox import testing
from toolbox.ansible import playbook_server
from toolbox.ground.kit import fork_server
from toolbox.ground.kit.process_tree import MARK
from toolbox.ground.system import environ, places, processes, signals
from toolbox.ground.system.fork_connections import Connection
from toolbox.ground.system.fork_servers import ForkedProcess, ForkServer
from toolbox.targets.agent import module_server

start_program: Final = testing._start  # conftest.py replaces it
start_server: Final = processes.start_server  # each fork replaces it
# So that a copy of the checkout imports itself, and not the checkout that is installed.
_START: Final = (
    f"import sys; sys.path[0] = {str(places.builtin_root())!r}; "
    "from tests import forked_commands; forked_commands.main()"
)
SWITCH: Final = "TOPGALLANT_TEST_FORKS"
"""With the value `0`, all command lines are started as programs."""
_PROGRAM: Final = (sys.executable, str(places.builtin_root() / "run_toolbox.py"))
SCRIPT: Final = shlex.join(_PROGRAM)
"""The start of a shell command that starts Topgallant as a program. Its arguments follow."""
_START_VARIABLES: Final = re.compile(r"PYTHON|LANG|LC_|LD_|MALLOC_|GLIBC_|OPENSSL_|NO_COLOR$|TERM$")
# The programs that are started as forks, and what they import of other libraries.
_SERVERS: Final = tuple(str(module.__file__) for module in (playbook_server, module_server))
_LIBRARIES: Final = (
    "cryptography.hazmat.primitives.serialization.ssh",
    "distro",
    "jinja2.nativetypes",
    "multiprocessing.queues",
    "multiprocessing.shared_memory",
    "packaging.version",
    "runpy",
    "tarfile",
    "urllib.request",
    "xmltodict",
    "yaml.cyaml",
    "zipfile",
)
# What many command lines import. Other libraries of extras, such as the client of Kubernetes, are not among them.
_MODULES: Final = ("toolbox.cli.main", "fire", "alembic.command", "sqlalchemy.dialects.sqlite", "github", "gitlab")
_PACKAGES: Final = (
    "toolbox.targets.backends",
    "toolbox.judges.checks",
    "toolbox.features.ci",
    "toolbox.cli.commands",
    "toolbox.features.ci.forges",
    "toolbox.features.inference.page_sections",
    "toolbox.features.notebooks.page_sections",
    "toolbox.matrix",
    "toolbox.judges.metrics",
    "toolbox.orchestration",
    "toolbox.reports",
    "toolbox.records.results",
)


class Command:
    """A command line in a fork, with those methods of `subprocess.Popen` that `toolbox.testing` uses."""

    def __init__(self, process: ForkedProcess) -> None:
        self.pid = process.pid
        self.stdout: IO[bytes] = process.stdout
        self.stderr: IO[bytes] = process.stderr
        self.wait: Callable[..., int] = process.wait
        self._process = process

    @property
    def returncode(self) -> int | None:
        """The exit code; None if no method has noticed the end of the process."""
        return self._process.returncode

    def poll(self) -> int | None:
        """Return the exit code; None while the process runs."""
        return _poll(self)

    def send_signal(self, number: int) -> None:
        """Send a signal to the process, unless it has ended."""
        _signal(self, number)


class _Server(ForkedProcess):
    """A server in a fork, with those attributes of `subprocess.Popen` that `processes` uses."""

    def __init__(self, connection: Connection, stdin: IO[bytes]) -> None:
        self.returncode: int | None = None
        self.pid = connection.pid
        self.stdin = stdin
        self._connection = connection

    def poll(self) -> int | None:
        return _poll(self)

    def kill(self) -> None:
        _signal(self, signal.SIGKILL)


def _poll(process: Command | ForkedProcess) -> int | None:
    """Return the exit code; None while the process runs."""
    with suppress(subprocess.TimeoutExpired):
        return process.wait(0)
    return None


def _signal(process: Command | _Server, number: int) -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):  # its parent is the server, which may have read its exit status since
            os.kill(process.pid, number)


class Commands:
    """Starts command lines. The first one starts the server.

    Args:
        directory: a private directory.
    """

    def __init__(self, directory: Path) -> None:
        self.forks_servers = True
        """Whether the servers of Ansible that command lines start are forks too."""
        self._directory = directory
        self._lock = threading.Lock()
        self._variables = start_variables()
        self._server: ForkServer | None = None

    def start(self, args: Sequence[str], cwd: Path, env: Mapping[str, str]) -> Command | subprocess.Popen[bytes]:
        """Start a command line in a fork, or as a program if a fork would be different."""
        if tuple(args[:2]) != _PROGRAM:  # the tests are not those of this checkout
            return start_program(args, cwd, env)
        if not _starts_alike(env, self._variables):
            return start_program(args, cwd, env)
        server = self._running()
        message = {"args": list(args[1:]), "forks": str(server.path) if self.forks_servers else None}
        return Command(server.start(message, env, cwd.absolute()))

    def script(self) -> str:
        """Return the start of a shell command like `SCRIPT`, for scripts that have the variables `start_variables`."""
        client = Path(__file__).with_name("forked_program.py")
        return shlex.join([sys.executable, "-I", "-S", str(client), str(self._running().path)])

    def close(self) -> None:
        """End the server."""
        if self._server is not None:
            self._server.close()

    def _running(self) -> ForkServer:
        with self._lock:
            if self._server is None:
                # Tests look for processes with their directory in the environment, and must not find the server.
                own = {name: value for name, value in environ.everything().items() if name != MARK}
                self._server = ForkServer([sys.executable, "-c", _START], {**own, **self._variables}, self._directory)
                self._server.launch()
            return self._server


def start_variables() -> dict[str, str]:
    """Return the variables that Python reads at its start, as `toolbox.testing` sets them."""
    return _start_variables({**environ.everything(), "PYTHONUSERBASE": site.getuserbase()})


def main() -> None:
    """Serve until the standard input is closed. The only argument is the descriptor of the listening socket."""
    codes: list[int] = []
    atexit.register(_end, codes)  # the first one that is registered is the last one that is called
    listener = fork_server.listener_from_arguments()
    gc.disable()
    _preload()
    _parse_ansible_files()
    gc.freeze()
    gc.enable()
    fork = fork_server.serve(listener, 0)
    if fork is None:
        os._exit(0)  # quicker than the end of an interpreter with many modules
    if not _starts_alike(fork.message["env"]):
        fork.refuse("the command line has other variables that Python reads at its start")
    fork.begin(MARK)
    locale.setlocale(locale.LC_CTYPE, "")
    sys.argv = list(fork.message["args"])
    if fork.message.get("is_server"):
        _serve()
    sys.stdout, sys.stderr = _reopened(sys.stdout), _reopened(sys.stderr)
    if forks := fork.message.get("forks"):
        processes.start_server = partial(_start_server, forks)
    from toolbox.cli import main as cli

    codes.append(cli.main())
    sys.exit(codes[0])


def _start_server(
    socket: str, args: Sequence[str], env: Mapping[str, str], cwd: Path, errors: IO[bytes], *, keep: int
) -> processes.Server:
    """Start a server as `processes.start_server` does, but in a fork where that is the same."""
    program, file, *rest = args
    if program != sys.executable or file not in _SERVERS or not _starts_alike(env):
        return start_server(args, env, cwd, errors, keep=keep)
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb"), signals.deferred():
        # The fork has three streams: the listening socket takes the place of the standard output.
        message = {"args": [file, *rest], "env": dict(env), "cwd": str(cwd), "is_server": True}
        connection = Connection(socket, message, b"", [read_end, keep, errors.fileno()])
        server = cast("processes.Server", _Server(connection, os.fdopen(write_end, "wb")))
        processes._end_with_input.add(server)  # as the function does that this one replaces
        return server


def _serve() -> NoReturn:
    """Become a server program. The last argument of its program is the descriptor of its listening socket."""
    sys.argv.append(str(os.dup(1)))
    os.dup2(2, 1)
    sys.stdout, sys.stderr = _reopened(sys.stdout), _reopened(sys.stderr)
    sys.path[0] = str(Path(sys.argv[0]).parent)
    if sys.argv[0] == module_server.__file__:  # modules bring their own Ansible
        for name in [name for name in sys.modules if name.partition(".")[0] == "ansible"]:
            del sys.modules[name]
    runpy.run_path(sys.argv[0], run_name="__main__")
    sys.exit(0)


def _end(codes: Sequence[int]) -> None:
    """End a fork at once. Python would first delete all objects, which takes longer than most command lines."""
    if codes:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(codes[0])


def _start_variables(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if _START_VARIABLES.match(name)}


def _starts_alike(env: Mapping[str, str], own: Mapping[str, str] | None = None) -> bool:
    """Return whether Python starts with an environment as with another one, by default that of this process."""
    ours = _start_variables(environ.everything()) if own is None else dict(own)
    return _without_utf8_locale(_start_variables(env)) == _without_utf8_locale(ours)


def _without_utf8_locale(variables: dict[str, str]) -> dict[str, str]:
    """Leave out the locale if it is the usual one, because Python starts alike whichever variable names it."""
    locales = {name: variables[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if variables.get(name)}
    if next(iter(locales.values()), "") != "C.UTF-8":
        return variables
    return {name: value for name, value in variables.items() if name not in locales}


def _reopened(stream: TextIO) -> TextIO:
    """Return a stream as Python opens it at its start. The server has opened it for a file, in which one can seek."""
    assert isinstance(stream, io.TextIOWrapper)
    binary = open(stream.fileno(), "wb", 0 if stream.write_through else -1, closefd=False)  # noqa: SIM115
    return io.TextIOWrapper(
        binary, stream.encoding, stream.errors, line_buffering=stream.line_buffering, write_through=stream.write_through
    )


def _parse_ansible_files() -> None:
    """Parse the files of ansible-core that each of its programs parses, once for all forks."""
    from ansible.config import manager
    from ansible.utils.collection_loader import _collection_finder as finder

    read = manager.ConfigManager._read_config_yaml_file
    base = Path(manager.__file__).with_name("base.yml")
    settings = read(None, str(base))
    manager.ConfigManager._read_config_yaml_file = lambda own, file: settings if file == str(base) else read(own, file)
    parse = finder._meta_yml_to_dict
    runtime = base.with_name("ansible_builtin_runtime.yml").read_bytes()
    parsed = parse(runtime, ("ansible.builtin", "runtime.yml"))
    finder._meta_yml_to_dict = lambda text, content_id: parsed if text == runtime else parse(text, content_id)


def _preload() -> None:
    for name in (*_MODULES, *_LIBRARIES):
        importlib.import_module(name)
    for package in _PACKAGES:
        if importlib.util.find_spec(package.rpartition(".")[0]) is None or importlib.util.find_spec(package) is None:
            continue  # a feature may be left out
        path = importlib.import_module(package).__path__
        for found in pkgutil.walk_packages(path, f"{package}."):
            if ".migrations" not in found.name:  # only Alembic can import these
                importlib.import_module(found.name)
