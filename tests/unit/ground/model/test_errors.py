"""Each expected error has a verdict, a cause and an exit code."""

import errno
import signal
from pathlib import Path

import pytest

from toolbox.ground.model import errors
from toolbox.ground.model.errors import (
    Cancelled,
    CheckFailed,
    ConfigurationError,
    InfrastructureError,
    Interrupted,
    SeveralErrors,
    StepError,
    ToolboxError,
    UsageError,
)
from toolbox.ground.model.verdicts import Cause, Verdict


def step(verdict: Verdict, cause: Cause) -> StepError:
    """Return the error of a step that did not pass."""
    return StepError("no", verdict=verdict, cause=cause)


@pytest.mark.parametrize(
    ("error", "verdict", "cause", "code"),
    [
        (UsageError("no"), "error", "configuration", 2),
        (ConfigurationError("no"), "error", "configuration", 2),
        (InfrastructureError("no"), "error", "infrastructure", 3),
        (CheckFailed("no"), "failed", "check", 1),
        (step(Verdict.FAILED, Cause.PRODUCT), "failed", "product", 1),
        (step(Verdict.ERROR, Cause.CAPACITY), "error", "capacity", 3),
        (Cancelled("no"), "cancelled", "interrupted", 3),
        (Interrupted(signal.SIGINT), "cancelled", "interrupted", 130),
        (Interrupted(signal.SIGTERM), "cancelled", "interrupted", 143),
        (ZeroDivisionError("ours"), "error", "internal", 3),
        (SystemExit(0), "error", "internal", 3),
    ],
)
def test_each_error_has_its_verdict_its_cause_and_its_exit_code(
    error: BaseException, verdict: str, cause: str, code: int
) -> None:
    assert errors.outcome_of(error) == (verdict, cause)
    assert errors.exit_code_of(error) == code


def test_several_errors_have_the_verdict_of_the_first_error() -> None:
    first, second = CheckFailed("the loss rose"), ValueError("odd")
    error = SeveralErrors("models", [first, second])
    assert error.errors == (first, second)
    assert str(error) == "models: the loss rose (and 1 more)"
    assert (errors.outcome_of(error), errors.exit_code_of(error)) == (("failed", "check"), 1)


def test_a_single_error_has_no_count() -> None:
    assert str(SeveralErrors("models", [ValueError("odd")])) == "models: ValueError: odd"


def test_cancelled_is_not_caught_as_an_exception() -> None:
    assert not issubclass(Cancelled, Exception)
    assert not isinstance(Interrupted(signal.SIGINT), ToolboxError)


def test_an_interruption_names_its_signal() -> None:
    assert errors.describe(Interrupted(signal.SIGTERM)) == "interrupted by SIGTERM"


def test_a_step_error_says_where_its_evidence_is(tmp_path: Path) -> None:
    assert CheckFailed("no", directory=tmp_path).directory == tmp_path


def test_only_an_unexpected_error_is_described_with_its_type() -> None:
    assert errors.describe(UsageError("write it so")) == "write it so"
    assert errors.describe(KeyError("x")) == "KeyError: 'x'"


@pytest.mark.parametrize(("number", "cause"), [(errno.ENOSPC, Cause.INFRASTRUCTURE), (errno.ENOENT, Cause.INTERNAL)])
def test_a_full_disk_is_an_infrastructure_error(number: int, cause: Cause) -> None:
    assert errors.outcome_of(OSError(number, "said")) == (Verdict.ERROR, cause)
