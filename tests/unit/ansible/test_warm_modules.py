"""A module is executed in a fork only where a fork is equivalent to the shell command of ansible-core."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import pytest
from ansible.plugins.loader import module_utils_loader

from toolbox.ansible import warm_modules

VARYING = {"RANDOM", "SRANDOM", "SECONDS", "EPOCHSECONDS", "PPID", "BASHPID"}  # no two shells pass on the same


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """Return a folder with another folder, and a link to the latter."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    return tmp_path


def program_of(shell: str, folders: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let a shell be the `/bin/sh` of the module under test, and return its path."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    program = folders / "sh"
    program.symlink_to(str(shutil.which(shell)))
    monkeypatch.setattr(warm_modules, "_SHELL", str(program))
    return program


def executing(program: Path, env: Mapping[str, str], cwd: Path) -> warm_modules.Execute:
    """Return a function that executes commands as the plugin `local` of ansible-core does."""

    def execute(command: str) -> tuple[int, bytes, bytes]:
        done = subprocess.run(
            command, shell=True, executable=str(program), env=env, cwd=cwd, capture_output=True, check=False
        )
        return done.returncode, done.stdout, done.stderr

    return execute


@pytest.mark.parametrize("shell", ["bash", "dash", "busybox"])
@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"PWD": "{}/folder"},
        {"PWD": "{}/link"},
        {"PWD": "{}/link/../link/."},
        {"PWD": "folder"},
        {"PWD": "{}"},
        {"PWD": "{}/nothing"},
        {"SHLVL": "0"},
        {"SHLVL": "7"},
        {"SHLVL": "99"},
        {"SHLVL": "x"},
        {"SHLVL": "999"},
        {"SHLVL": "-1"},
        {"SHLVL": "1000"},
        {"SHLVL": ""},
        {"SHLVL": " 4"},
        {"SHLVL": "04"},
        {"OLDPWD": "{}/link"},
        {"OLDPWD": "{}/nothing"},
        {"OLDPWD": "."},
        {"OLDPWD": ""},
        {"_": "/bin/true", "PS1": "x", "PS2": "y", "PS3": "z", "TERM": "dumb", "MAILPATH": "x", "CDPATH": "/"},
        *({name: "5"} for name in ("IFS", "OPTIND", "OPTERR", "PPID", "RANDOM", "UID", "EUID", "SECONDS", "LINENO")),
        *({name: "5"} for name in ("HOSTNAME", "LINES", "COLUMNS", "MACHTYPE", "BASH", "BASH_VERSION", "FUNCNAME")),
        *(
            {name: "5"}
            for name in ("PS4", "GROUPS", "DIRSTACK", "HISTCMD", "BASHPID", "EPOCHSECONDS", "SRANDOM", "TMOUT")
        ),
        {"A.B": "1", "1A": "2", "é": "é"},
        {"BASH_FUNC_greet%%": "() { echo hello; }"},
        {"BASHOPTS": "extglob"},
        {"SHELLOPTS": "noglob"},
        {"POSIXLY_CORRECT": "1"},
        {"BASH_ENV": "{}/nothing", "ENV": "{}/nothing"},
        {"EMPTY": "", "LONG": "x" * 10_000, "QUOTED": "a 'b\""},
    ],
    ids=lambda variables: ",".join(variables) or "none",
)
def test_a_fork_gets_the_variables_that_a_shell_passes_on(
    folders: Path, monkeypatch: pytest.MonkeyPatch, shell: str, variables: dict[str, str]
) -> None:
    program = program_of(shell, folders, monkeypatch)
    env = {name: value.format(folders) if "{}" in value else value for name, value in variables.items()}
    env |= {"PATH": os.defpath, "LC_ALL": "C.UTF-8"}
    cwd = folders / "link"
    interpreter = shutil.which("env")
    assert interpreter is not None
    ordinary = executing(program, env, cwd)
    _, output, errors = ordinary(f"{program} -c '{interpreter} --null && sleep 0'")
    expected = dict(entry.split("=", 1) for entry in output.decode().split("\0")[:-1])
    known = warm_modules.shell_environment(env, str(cwd), interpreter, shell)
    asked = warm_modules.ask_shell(env, interpreter, ordinary)
    assert (asked is None) == bool(errors), "bash warns of a very large `SHLVL`"
    for passed_on in (known or expected, asked or expected):
        assert passed_on.keys() == expected.keys()
        assert {name for name in expected if passed_on[name] != expected[name]} <= VARYING


@pytest.mark.parametrize(
    "answer",
    [
        (0, b"A=1\0PWD=/\0hello", b""),
        (0, b"hello\nA=1\0PWD=/\0", b""),
        (0, b"A=1\0hello\0", b""),
        (0, b"A=1\0PWD=/\0", b"hello"),
        (0, b"A=1\0B=1\0", b""),
        (127, b"", b"/bin/cat: not found"),
        (1, b"A=1\0", b""),
    ],
)
def test_a_shell_that_prints_something_else_is_not_believed(answer: tuple[int, bytes, bytes]) -> None:
    assert warm_modules.ask_shell({"A": "1"}, sys.executable, lambda _: (0, b"A=1\0PWD=/\0", b"")) is not None
    assert warm_modules.ask_shell({"A": "1"}, sys.executable, lambda _: answer) is None


def test_the_usual_environment_is_known() -> None:
    for shell in ("bash", "dash"):
        env = {"PATH": "/bin", "HOME": "/", "PWD": "/tmp", "SHLVL": "1", "LANG": "C.UTF-8", "A.B": "1"}
        assert warm_modules.shell_environment(env, "/", sys.executable, shell)
    assert warm_modules.shell_environment(env, "/", sys.executable, "zsh") is None


def test_ansible_executes_a_module_for_which_there_are_no_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_pipe() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "pipe", no_pipe)
    command = f"/bin/sh -c '{sys.executable} && sleep 0'"
    with warm_modules.server.entered("/there/is/nothing"):
        assert warm_modules.execute(command, b"payload", None, lambda _: (127, b"", b"")) is None


@pytest.mark.parametrize(
    ("command", "interpreter"),
    [
        ("/usr/bin/python3 && sleep 0", "/usr/bin/python3"),
        ("python3 && sleep 0", "python3"),
        ("/home/jürgen/v@1/bin/python && sleep 0", "/home/jürgen/v@1/bin/python"),
        ("'/home/my own/bin/python' && sleep 0", "/home/my own/bin/python"),
        ("/home/my own/bin/python && sleep 0", None),
        ("~/bin/python && sleep 0", None),
        ("A=1 && sleep 0", None),
        ("/bin/$X && sleep 0", None),
        ("'/bin/a'b && sleep 0", None),
        ("/usr/bin/python3 /tmp/module.py && sleep 0", None),
    ],
)
def test_the_interpreter_of_a_module_is_found(command: str, interpreter: str | None) -> None:
    assert warm_modules.interpreter_of(f"/bin/sh -c {shlex.quote(command)}") == interpreter


@pytest.mark.parametrize(("shell", "is_known"), [("bash", False), ("dash", True)])
def test_dash_keeps_variables_of_bash(shell: str, is_known: bool) -> None:
    env = {"BASH_FUNC_which%%": "() { :; }", "BASH_ENV": "/dev/null", "UID": "0", "PWD": "/"}
    passed_on = warm_modules.shell_environment(env, "/", sys.executable, shell)
    assert passed_on == ({"BASH_ENV": "/dev/null", "UID": "0", "PWD": "/"} if is_known else None)


def test_a_folder_that_cannot_be_read_may_replace_parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def unreadable(_: Path) -> NoReturn:
        raise PermissionError(errno.EACCES, "Permission denied")

    assert warm_modules._has_core_library()
    monkeypatch.setattr(module_utils_loader, "print_paths", lambda: str(tmp_path))
    assert warm_modules._has_core_library()  # the folder is empty
    (tmp_path / "basic.py").touch()
    assert not warm_modules._has_core_library()
    monkeypatch.setattr(Path, "iterdir", unreadable)
    assert not warm_modules._has_core_library()
