"""How a step ended and why: the verdicts, the causes, their order, and the exit code of a run.

The journal, the summary and every report contain verdicts and causes as values. Don't derive them from counts, from the
text of a log, or from the fact that an exception was raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum, StrEnum
from typing import Final, TypeVar

_T = TypeVar("_T")

CAUSE_KEY: Final = "topgallant_cause"  # the key of the cause in the results of Topgallant's Ansible modules


class Verdict(StrEnum):
    """How a step ended."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    SKIPPED = "skipped"
    XFAILED = "xfailed"
    XPASSED = "xpassed"
    CANCELLED = "cancelled"

    @property
    def is_pass(self) -> bool:
        """Whether the step passed, was skipped, or failed as expected."""
        return self in {Verdict.PASSED, Verdict.SKIPPED, Verdict.XFAILED}


class Cause(StrEnum):
    """Why a step did not pass."""

    PRODUCT = "product"
    CHECK = "check"
    REGRESSION = "regression"
    INFRASTRUCTURE = "infrastructure"
    CAPACITY = "capacity"
    TIMEOUT = "timeout"
    CONFIGURATION = "configuration"
    INTERRUPTED = "interrupted"
    INTERNAL = "internal"


class ExitCode(IntEnum):
    """The exit code of the command line."""

    PASSED = 0
    FAILED = 1
    USAGE = 2
    ERROR = 3
    NOTHING_RAN = 4
    DEADLINE = 124
    SIGINT = 130
    SIGTERM = 143


UNEXPECTED: Final = frozenset({Verdict.FAILED, Verdict.ERROR, Verdict.XPASSED})
"""The verdicts of a step that failed, had an error, or passed unexpectedly."""

# From the least severe to the most severe. A step is cancelled because another step failed or because the run is
# ending, so a failure is more severe than a cancellation.
_SEVERITY = (
    Verdict.SKIPPED,
    Verdict.PASSED,
    Verdict.XFAILED,
    Verdict.XPASSED,
    Verdict.CANCELLED,
    Verdict.FAILED,
    Verdict.ERROR,
)
# A run that was refused has the verdict `error`. A signal or a deadline ends all runs of a command line.
_EXIT_CODES: Final = (
    ExitCode.NOTHING_RAN,
    ExitCode.PASSED,
    ExitCode.FAILED,
    ExitCode.USAGE,
    ExitCode.ERROR,
    ExitCode.DEADLINE,
    ExitCode.SIGINT,
    ExitCode.SIGTERM,
)


def worst_exit_code(codes: Iterable[int]) -> ExitCode:
    """Return the exit code of several runs: that of the worst outcome, in the order of the verdicts."""
    return max(map(ExitCode, codes), key=_EXIT_CODES.index, default=ExitCode.NOTHING_RAN)


def worst(items: Iterable[_T], verdict: Callable[[_T], Verdict]) -> _T | None:
    """Return the first of the items with the most severe verdict; None if there are no items."""
    return max(items, key=lambda item: _SEVERITY.index(verdict(item)), default=None)


def exit_code(verdict: Verdict | None) -> ExitCode:
    """Return the exit code of a run that ended with this verdict, and not by a signal or its deadline."""
    match verdict:
        case None | Verdict.SKIPPED:
            return ExitCode.NOTHING_RAN
        case Verdict.PASSED | Verdict.XFAILED:
            return ExitCode.PASSED
        case Verdict.FAILED | Verdict.XPASSED:
            return ExitCode.FAILED
        case Verdict.ERROR | Verdict.CANCELLED:
            return ExitCode.ERROR
