"""The check `relation` compares a metric with the same metric of another cell."""

import math
import re
from typing import Any

import pytest

from toolbox.ground.model.evidence import Judgement, Metric, Reference
from toolbox.judges.checks.relation import Check

from .conftest import Judge

NAME = "model=small,batch=1"
SPEC = {"check": "relation", "metric": "speed", "to": {"batch": 1}}


def reference(*metrics: Metric) -> Reference:
    """Return the reference cell with these metrics."""
    return Reference(NAME, {metric.name: metric for metric in metrics})


@pytest.mark.parametrize(
    ("bounds", "passed", "expected"),
    [
        ({"lower": 1.8}, True, "at least 1.8"),
        ({"lower": 1.92}, True, "at least 1.92"),
        ({"lower": 2}, False, "at least 2"),
        ({"upper": 1.9}, False, "at most 1.9"),
        ({"lower": 1, "upper": 2}, True, "1 to 2"),
        ({"lower": 1, "upper": 1.5}, False, "1 to 1.5"),
    ],
)
def test_a_ratio_is_the_value_of_this_cell_divided_by_that_of_the_reference(
    judge: Judge, bounds: dict[str, float], passed: bool, expected: str
) -> None:
    here, there = Metric("speed", 480, "tokens/s"), Metric("speed", 250, "tokens/s")
    message = f"speed is 1.92 times that of `{NAME}` (480 tokens/s against 250 tokens/s); required: {expected}"
    found = judge(here, **SPEC, **bounds, reference=reference(there))
    assert found == Judgement(passed, message, out_of_range=not passed)


def test_a_speedup_is_the_time_of_the_reference_divided_by_that_of_this_cell(judge: Judge) -> None:
    here, there = Metric("speed", 0.25, "s"), Metric("speed", 0.5, "s")
    message = f"speed is 2 times as fast as in `{NAME}` (0.25 s against 0.5 s); required: at least 1.8"
    judged = judge(here, **SPEC, lower=1.8, kind="speedup", reference=reference(there))
    assert judged == Judgement(True, message)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (None, "outside of a matrix, there is no cell to compare with"),
        (
            Reference(NAME, is_missing=True, fault="it was skipped"),
            f"no comparison is possible with `{NAME}` (it was skipped)",
        ),
    ],
)
def test_without_a_reference_cell_there_is_no_judgement(judge: Judge, other: Reference | None, message: str) -> None:
    assert judge(Metric("speed", 1), **SPEC, lower=1, reference=other) == Judgement(None, message)
    assert judge(**SPEC, lower=1, reference=other).passed is None


@pytest.mark.parametrize(
    ("here", "other", "message"),
    [
        ([Metric("speed", 1)], Reference(NAME, fault="exit status 1"), f"`{NAME}` has no metrics: exit status 1"),
        ([Metric("speed", 1)], Reference(NAME), f"`{NAME}` has no metrics: it did not pass"),
        ([], reference(Metric("speed", 1)), "speed is not a metric of this cell; its metrics: none"),
        ([Metric("speed", 1)], reference(), "speed is not a metric of the compared cell; its metrics: none"),
        ([Metric("speed", None, fault="no log")], reference(Metric("speed", 1)), "speed is not a finite number"),
        ([Metric("speed", 1)], reference(Metric("speed", None, fault="no log")), "in the compared cell, speed is not"),
        ([Metric("speed", math.nan)], reference(Metric("speed", 1)), "in this cell, speed is not a finite number: nan"),
        ([Metric("speed", 1)], reference(Metric("speed", math.inf)), "cell, speed is not a finite number: inf"),
        ([Metric("speed", 1, "s")], reference(Metric("speed", 1, "ms")), "1 s and 1 ms have different units"),
        ([Metric("speed", 1)], reference(Metric("speed", 0)), "the ratio of 1 and 0 is undefined"),
        ([Metric("speed", 1e308)], reference(Metric("speed", 1e-308)), r"the ratio of 1e\+308 and 1e-308 is undefined"),
    ],
)  # fmt: skip
def test_numbers_that_cannot_be_compared_fail_with_the_reason(
    judge: Judge, here: list[Metric], other: Reference, message: str
) -> None:
    judgement = judge(*here, **SPEC, lower=1, reference=other)
    assert judgement.passed is False
    assert re.search(message, judgement.message)


def test_the_speedup_of_a_time_of_zero_is_undefined(judge: Judge) -> None:
    judgement = judge(
        Metric("speed", 0, "s"), **SPEC, lower=1, kind="speedup", reference=reference(Metric("speed", 1, "s"))
    )
    assert (judgement.passed, "the speedup of 0 s and 1 s is undefined" in judgement.message) == (False, True)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, "set `lower`, `upper` or both"),
        ({"lower": 2, "upper": 1}, "the lower bound 2 is above the upper bound 1"),
        ({"lower": math.nan}, "lower"),
        ({"upper": True}, "upper\n.*a bound is a number, not `true` or `false`"),
        ({"lower": 1, "to": {}}, "to"),
        ({"lower": 1, "to": "batch=1"}, "to"),
        ({"lower": 1, "kind": "difference"}, "kind"),
        ({"lower": 1, "metric": None}, "metric"),
        ({"lower": 1, "than": 1}, "than"),
    ],
)
def test_a_wrong_field_is_refused(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Check.model_validate({"metric": "speed", "to": {"batch": 1}, **spec})
