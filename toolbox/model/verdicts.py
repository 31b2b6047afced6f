"""How a step ended and why: the verdicts, the causes, their order, and the exit code of a run.

The journal, the summary and every report carry them as values. They are never derived from counts, from the text of a
log, or from the fact that an exception was raised.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum, StrEnum
from typing import Final

CAUSE_KEY: Final = "topgallant_cause"  # with this key, our Ansible modules report why they failed


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
        """Whether the step needs no attention."""
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


# The worst outcome wins. A cancelled step says little: the failure that caused the cancellation says more.
_SEVERITY = (
    Verdict.SKIPPED,
    Verdict.PASSED,
    Verdict.XFAILED,
    Verdict.XPASSED,
    Verdict.CANCELLED,
    Verdict.FAILED,
    Verdict.ERROR,
)


def worst(verdicts: Iterable[Verdict]) -> Verdict | None:
    """Return the worst of the verdicts, or None when there are none."""
    return max(verdicts, key=_SEVERITY.index, default=None)


def exit_code(verdict: Verdict | None) -> ExitCode:
    """Return the exit code of a run with this verdict, if no signal and no deadline ended the run."""
    match verdict:
        case None | Verdict.SKIPPED:
            return ExitCode.NOTHING_RAN
        case Verdict.PASSED | Verdict.XFAILED:
            return ExitCode.PASSED
        case Verdict.FAILED | Verdict.XPASSED:
            return ExitCode.FAILED
        case Verdict.ERROR | Verdict.CANCELLED:
            return ExitCode.ERROR
