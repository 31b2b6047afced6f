"""Sends the agent to a target, where a Python interpreter reads it from standard input. Nothing is installed."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Sequence
from typing import Final

from toolbox.ground import kit
from toolbox.ground.kit import source_code
from toolbox.targets import agent

TOO_OLD: Final = "the agent needs Python 3.8 or later"
# The agent needs only the standard library. Without installed packages, Python starts twice as fast, and a file that a
# workload has left in the home directory cannot replace a module. `-I` would do the same, but Python 2 lacks it.
_ISOLATED: Final = ("-E", "-s", "-S")
# Any version of Python can run this program. The program reads no byte beyond the text of the agent, because the
# requests follow on the same standard input.
_LOADER: Final = f"""
import sys
sys.path[:] = [folder for folder in sys.path if folder]  # without the working directory
import os
if sys.version_info < (3, 8):
    raise SystemExit("{TOO_OLD}, and this is " + sys.version.split()[0])
def read(count):
    content = b""
    while len(content) < count:
        piece = os.read(0, count - len(content))
        if not piece:
            raise SystemExit("the connection ended before the whole agent arrived")
        content += piece
    return content
exec(compile(read(int(read(8))), "<topgallant agent>", "exec"))
"""
# Runs the program in the first line of its input. This is one line, because not every shell can quote line breaks.
_LINE_LOADER: Final = 'exec(open(0, "rb", 0, closefd=False).readline())'


def command(python: str) -> Sequence[str]:
    """Return the command that reads the program of the agent from its standard input, and runs the agent."""
    return [python, *_ISOLATED, "-c", _LOADER]


def shell_command(python: str) -> str:
    """Return a shell command that reads a line, and then the program of the agent, from its standard input.

    Other than with `command`, the interpreter starts as it does for other programs of the user.
    """
    return shlex.join([python, "-c", _LINE_LOADER])


def first_line() -> bytes:
    """Return the line that a `shell_command` reads."""
    return f"exec({_LOADER!r})\n".encode()


@functools.cache
def program(entry: str = "server") -> bytes:
    """Return the program of the agent: the first bytes to write to the command that `command` returns.

    Args:
        entry: the module of the agent whose function `main` is called.
    """
    text = f"{source_code.program(f'{agent.__name__}.{entry}', agent, kit)}{entry}.main()\n".encode()
    return f"{len(text):08d}".encode() + text
