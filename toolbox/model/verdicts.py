"""How a step ended and why: the verdicts, the causes, their order, and the exit code of a run.

They are values that the journal, the summary and every report carry. Nobody infers them from counts, from
the text of a log, or from the fact that an exception arrived.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum, StrEnum
from typing import Final

CAUSE_KEY: Final = "topgallant_cause"  # where a module of ours tells Ansible why it failed


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
        """True when nobody has to look at the step."""
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
    """What the command line returns to the shell."""

    PASSED = 0
    FAILED = 1
    USAGE = 2
    ERROR = 3
    NOTHING_RAN = 4
    DEADLINE = 124
    SIGINT = 130
    SIGTERM = 143


# The worst outcome wins. What was cancelled has told nothing: the failure that had it cancelled says more.
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
    """Return the exit code of a run that ended with this verdict and that no signal or deadline ended."""
    match verdict:
        case None | Verdict.SKIPPED:
            return ExitCode.NOTHING_RAN
        case Verdict.PASSED | Verdict.XFAILED:
            return ExitCode.PASSED
        case Verdict.FAILED | Verdict.XPASSED:
            return ExitCode.FAILED
        case Verdict.ERROR | Verdict.CANCELLED:
            return ExitCode.ERROR
