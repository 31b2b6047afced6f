"""Executes a module in a fork of a module server (`toolbox.targets.agent.module_server`), where this is equivalent.

The connection plugins call this module in the processes of Ansible. `execute` is for this machine, and `ssh_links` for
other hosts.
"""

from __future__ import annotations

import os
import re
import selectors
import shlex
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from toolbox.ground.system import environ
from toolbox.ground.system.context_values import ContextValue
from toolbox.ground.system.fork_servers import ForkedProcess

server: Final[ContextValue[str]] = ContextValue("module_server")
"""The path of the server's socket. It is not in an environment variable, which modules would see."""
_SHELL: Final = "/bin/sh"
# What ansible-core executes for a pipelined module without `become` and `environment`.
_COMMAND: Final = re.compile(r"((?:/|\w)[\w./+@%,:-]*|'/[^']+') && sleep 0")
# Variables that a shell reads or changes itself.
_CHANGED: Final = {
    "bash": re.compile(
        r"BASH(_.*|PID|OPTS)?|SHELLOPTS|POSIXLY_CORRECT|IFS|PS4|OPT(IND|ERR)|E?UID|PPID|S?RANDOM|LINENO|HISTCMD"
        r"|(EPOCH)?SECONDS|EPOCHREALTIME|FUNCNAME|GROUPS|DIRSTACK|COMP_WORDBREAKS",
        re.DOTALL,
    ),
    "dash": re.compile("IFS|OPTIND|PPID"),
}
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PRINTER: Final = "/bin/cat"
_SET_BY_SHELLS: Final = ("PWD", "OLDPWD", "SHLVL", "_")
Execute = Callable[[str], tuple[int, bytes, bytes]]


class Ended(NamedTuple):
    """A module that has ended.

    Args:
        exit_code: negative for a signal.
        lost: why the server has ended before the module; None if the server has not ended.
    """

    exit_code: int
    stdout: bytes
    stderr: bytes
    lost: str | None

    def result(self, ordinary: Execute) -> tuple[int, bytes, bytes]:
        """Return the exit status, the output and the errors, as they are if a shell starts the interpreter.

        Args:
            ordinary: executes a command of ansible-core. A shell describes the end of a program by a signal in its own
                words, so let the shell on the machine of the module do it.
        """
        if self.exit_code >= 0:
            return self.exit_code, self.stdout, self.stderr
        killed = f"{_SHELL} -c 'kill {self.exit_code} $$' && sleep 0"
        status, output, errors = ordinary(f"{_SHELL} -c {shlex.quote(killed)}")
        return status, self.stdout + output, self.stderr + errors


def execute(command: str, payload: bytes, cwd: bytes | str | None, ordinary: Execute) -> Ended | None:
    """Execute the payload of a module. Return None if Ansible has to execute the command.

    Args:
        command: the command of ansible-core, which reads the payload from its standard input.
        ordinary: executes a command of ansible-core.
    """
    path = server.get()
    interpreter = interpreter_of(command)
    if path is None or interpreter is None:
        return None
    directory = os.fsdecode(cwd or Path.cwd())
    variables, shell = environ.everything(), Path(_SHELL).resolve().name
    env = shell_environment(variables, directory, interpreter, shell)
    env = env or ask_shell(variables, interpreter, ordinary)
    if env is None:
        return None
    return request(path, {"interpreter": interpreter, "env": env, "cwd": directory}, payload)


def request(path: str, message: Mapping[str, object], payload: bytes) -> Ended | None:
    """Send a module to a server, and wait for its end. Return None if the server has not executed the module.

    Args:
        path: the socket of the server.
    """
    try:
        process = ForkedProcess(path, {**message, "has_core_library": _has_core_library()}, payload)
    except OSError:
        return None
    with closing(process):  # an exception, for example at the time limit of the task, ends the module
        output, errors = _read([process.stdout.fileno(), process.stderr.fileno()])
        return Ended(process.wait(), output, errors, process.lost)


def shell_environment(env: dict[str, str], cwd: str, interpreter: str, shell: str) -> dict[str, str] | None:
    """Return the environment in which a shell starts the interpreter; None if only the shell itself can say.

    Args:
        env: the environment of the shell.
        shell: the name of the program, such as `dash`.
    """
    if shell not in _CHANGED or any(map(_CHANGED[shell].fullmatch, env)):
        return None
    if shell == "dash":
        env = {name: value for name, value in env.items() if _NAME.fullmatch(name)}
    pwd = env.get("PWD", "")
    is_valid = pwd.startswith("/") and _is_same(pwd, cwd)
    env = {**env, "PWD": pwd if is_valid else os.path.realpath(cwd)}
    if shell == "bash":
        level = env.get("SHLVL", "0")
        if not re.fullmatch("[0-9]{1,2}", level):
            return None
        env |= {"SHLVL": str(int(level) + 1), "_": interpreter}
        for prompt in ("PS1", "PS2"):
            env.pop(prompt, None)
        if not os.path.isdir(env.get("OLDPWD", "/")):  # noqa: PTH112  # an empty text is not a folder
            del env["OLDPWD"]
    return env


def ask_shell(env: Mapping[str, str], interpreter: str, ordinary: Execute) -> dict[str, str] | None:
    """Return the environment in which the shell starts the interpreter, which the shell itself prints.

    This takes a few milliseconds. It is needed, for example, on systems whose `/bin/sh` is bash and whose users export
    functions. The result is None if a startup file prints something too.

    Args:
        env: the environment of the shell.
    """
    status, output, errors = ordinary(f"{_SHELL} -c '{_PRINTER} /proc/self/environ && sleep 0'")
    *entries, rest = os.fsdecode(output).split("\0")
    found = dict(entry.split("=", 1) for entry in entries if "=" in entry)
    is_expected = len(found) == len(entries) and found.keys() <= {*env, *_SET_BY_SHELLS}
    if status or errors or rest or not is_expected or env.get("_") == _PRINTER:
        return None
    if found.get("_") == _PRINTER:
        found["_"] = interpreter
    return found


def interpreter_of(command: str) -> str | None:
    """Return the interpreter that a command starts for a module; None if it is another command."""
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    if len(words) != len(["sh", "-c", "COMMAND"]) or words[:2] != [_SHELL, "-c"]:
        return None
    match = _COMMAND.fullmatch(words[2])
    return match[1].strip("'") if match else None


def _has_core_library() -> bool:
    """Return whether all modules get the library of ansible-core: no folder of a role or of the user may replace parts.

    Otherwise a server must not import the library of a module, because all later modules would share what it changes.
    If a folder cannot be read, or a later ansible-core has no list of the folders, the result is False.
    """
    from ansible import module_utils
    from ansible.plugins.loader import module_utils_loader

    try:
        core = Path(module_utils.__file__).parent
        folders = [Path(folder) for folder in module_utils_loader.print_paths().split(os.pathsep)]
        return not any(folder.is_dir() and not folder.samefile(core) and any(folder.iterdir()) for folder in folders)
    except (OSError, AttributeError):
        return False


def _is_same(path: str, other: str) -> bool:
    try:
        return Path(path).samefile(other)
    except OSError:
        return False


def _read(descriptors: list[int]) -> list[bytes]:
    """Read all descriptors to their ends."""
    contents = {descriptor: bytearray() for descriptor in descriptors}
    with selectors.DefaultSelector() as selector:
        for descriptor in descriptors:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select():
                if piece := os.read(key.fd, 1 << 16):
                    contents[key.fd] += piece
                else:
                    selector.unregister(key.fd)
    return [bytes(content) for content in contents.values()]
