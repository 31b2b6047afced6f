"""Fails a session of tests that leaves processes, and names those that end late. `conftest.py` registers this plugin.

Every process that the session starts inherits an environment variable whose value is unique to the session. A process
that has lost the variable is recognized by its working directory, or by the directory in the variable that marks its
step: both are below the temporary directory of the session.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
import pytest

from toolbox.ground.kit.process_tree import MARK

VARIABLE: Final = "PYTEST_SESSION_OF_TOPGALLANT"
_TEST: Final = "PYTEST_CURRENT_TEST"
_LATE_SECONDS: Final = 10.0
_GRACE_SECONDS: Final = 60.0  # on a busy machine, a process may take this long to end
_LOOK_SECONDS: Final = 0.1
_CHECKED: Final = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)


@dataclass(frozen=True, slots=True)
class Leftover:
    """A process that outlived the tests."""

    process: psutil.Process
    command: str
    test: str

    def __str__(self) -> str:
        """Return the line of the report for this process."""
        return f"{self.process.pid}: {self.command} ({self.test or 'test unknown'})"


class Leftovers:
    """The plugin that looks for leftovers, in the process that controls the session and not in its workers."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._value = secrets.token_hex(16)
        self._late: Sequence[Leftover] = ()
        self._found: Sequence[Leftover] = ()
        os.environ[VARIABLE] = self._value

    @pytest.hookimpl(trylast=True)  # after pytest-xdist has ended its workers
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus not in _CHECKED:
            return
        directory: Path = self._config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # not public
        self._late = lasting(self._value, directory, _LATE_SECONDS)
        if self._late:
            self._found = lasting(self._value, directory, _GRACE_SECONDS - _LATE_SECONDS)
        if self._found:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._found:
            terminalreporter.section("processes that the tests have left", red=True)
        elif self._late:
            terminalreporter.section(f"processes that ended more than {_LATE_SECONDS:g} s after the tests", yellow=True)
        for leftover in self._found or self._late:
            terminalreporter.line(str(leftover))
        for leftover in self._found:
            with suppress(psutil.NoSuchProcess):
                leftover.process.kill()


def lasting(value: str, directory: Path, seconds: float) -> Sequence[Leftover]:
    """Return the processes of a session that have not ended by themselves after `seconds`."""
    deadline = time.monotonic() + seconds
    while (leftovers := list(find(value, directory))) and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
    return leftovers


def find(value: str, directory: Path) -> Iterable[Leftover]:
    """Yield the processes of a session, except this process and its ancestors.

    Args:
        value: value of the session's variable.
        directory: temporary directory of the session.
    """
    own = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    for process in psutil.process_iter():
        # The process has ended meanwhile, or belongs to another user.
        with suppress(psutil.Error, OSError):
            if (
                process.pid not in own
                and process.status() != psutil.STATUS_ZOMBIE
                and _is_of(process, value, directory)
            ):
                yield Leftover(process, " ".join(process.cmdline())[:200], process.environ().get(_TEST, ""))


def _is_of(process: psutil.Process, value: str, directory: Path) -> bool:
    variables = process.environ()
    if VARIABLE in variables:
        return variables[VARIABLE] == value
    places = [Path(place) for place in (process.cwd(), variables.get(MARK)) if place]
    return any(place.is_relative_to(directory) for place in places)
