"""A plugin for runs of all tests: says what is skipped for want of a service, and how long the tests still take.

`make test` loads it: `pytest -p tests.session_report`. In place of a letter for each test, it prints a line every half
a minute, and the name of each failed test when the test fails.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest

from tests.servers import openssh, postgres

_EVERY_SECONDS: Final = 30.0
_FIRST_SECONDS: Final = 10.0  # before, the estimate of the remaining time would be a guess
# The typical seconds of a test by its kind, of which only the ratios are used.
_WEIGHTS: Final = {"unit": 0.1, "functional": 1.3, "conformance": 0.4, "live": 4.0, "browser": 2.0, "together": 40.0}
_SHORT_SECONDS: Final = 90.0
_SHELLS: Final = ("zsh", "ksh93", "fish", "tcsh", "busybox")

Service = tuple[str, Callable[[], bool], str]
SERVICES: Final[Sequence[Service]] = (
    (
        "the tests on a Kubernetes cluster",
        lambda: "TOPGALLANT_TEST_KUBECONFIG" in os.environ,
        "$TOPGALLANT_TEST_KUBECONFIG names the kubeconfig of a cluster that tests may use",
    ),
    ("the tests over SSH", lambda: openssh.TOOLS["sshd"] is not None, "apt-get install openssh-server"),
    ("the tests of pages in a browser", lambda: shutil.which("chromium") is not None, "apt-get install chromium"),
    ("the tests on PostgreSQL", postgres.is_installed, "apt-get install postgresql"),
    (
        "the tests of login shells",
        lambda: all(map(shutil.which, _SHELLS)),
        "apt-get install zsh ksh93u+m fish tcsh csh busybox-static",
    ),
    ("the tests on full disks and as another user", lambda: os.geteuid() == 0, "run the tests as root"),
)


def missing(services: Sequence[Service] = SERVICES) -> list[str]:
    """Return a line for each service that is missing: what is skipped, and how to get the service."""
    return [f"skips {tests}: {remedy}" for tests, is_there, remedy in services if not is_there()]


def kind(test: str) -> str:
    """Return the kind of a test, for example `unit`, by the folder of its file."""
    return next((part for part in test.partition("::")[0].split("/") if part in _WEIGHTS), "functional")


def weight(tests: Counter[str]) -> float:
    """Return the relative time of tests, from their numbers by kind."""
    return sum(number * _WEIGHTS[each] for each, number in tests.items())


def duration(seconds: float) -> str:
    """Return a time for a person, in seconds or in minutes."""
    return f"{seconds:.0f} s" if seconds < _SHORT_SECONDS else f"{seconds / 60:.0f} min"


class Progress:
    """Counts the tests that have ended.

    Args:
        tests: the ids of all tests of the session.
        clock: the time in seconds.
    """

    def __init__(self, tests: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = self._printed = clock()
        self._all = Counter(map(kind, tests))
        self._ended: Counter[str] = Counter()
        self.failed = 0

    def end(self, test: str) -> str | None:
        """Count a test, and return the line to print now; None between two lines."""
        self._ended[kind(test)] += 1
        now = self._clock()
        if now - self._printed < (_FIRST_SECONDS if self._printed == self._began else _EVERY_SECONDS):
            return None
        self._printed = now
        done = weight(self._ended)
        left = (now - self._began) * (weight(self._all) - done) / done
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{self._ended.total()} of {self._all.total()} tests{failed}; about {duration(left)} left"


class _Report:
    """The hooks of pytest in the process that prints."""

    def __init__(self, terminal: Any) -> None:
        self._terminal = terminal
        self._progress: Progress | None = None

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if session.items:  # with pytest-xdist, only the workers collect tests
            self._progress = Progress([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        self._progress = self._progress or Progress(ids)  # each worker reports the same tests

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        if hasattr(report, "wasxfail"):
            return None
        if report.when == "call" or report.skipped:
            return report.outcome, "", ""
        return "error" if report.failed else "", "", ""

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self._progress is None:
            return
        if report.failed:
            self._progress.failed += 1
            self._print(f"{report.nodeid} failed", red=True)
        if report.when == "teardown" and (line := self._progress.end(report.nodeid)) is not None:
            self._print(line)

    def _print(self, line: str, **markup: bool) -> None:
        self._terminal.ensure_newline()
        self._terminal.write_line(line, **markup)


def pytest_report_header() -> list[str]:
    """Say what is skipped for want of a service."""
    return missing()


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Register the hooks in the process that prints."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Report(config.pluginmanager.getplugin("terminalreporter")))
