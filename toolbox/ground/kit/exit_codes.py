"""Exit codes of programs that a signal ended, and the names of signals."""

from __future__ import annotations

import signal

SIGNALLED = 128
"""A shell reports that a signal ended a program by this number plus the number of the signal."""


def from_returncode(returncode: int) -> int:
    """Return the exit code that a shell would report for a return code of Python, which is negative for a signal."""
    return returncode if returncode >= 0 else SIGNALLED - returncode


def signal_name(number: int) -> str:
    """Return the name of a signal, such as `SIGKILL`; `signal 35` for a signal without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
