"""A metric is rendered as text, and a judgement refuses causes that a check cannot know."""

import pytest

from toolbox.ground.model.evidence import Judgement, Metric
from toolbox.ground.model.verdicts import Cause


@pytest.mark.parametrize(
    ("metric", "text"),
    [
        (Metric("loss", 2.5), "2.5"),
        (Metric("step_time", 0.0421234567, unit="s"), "0.0421235 s"),
        (Metric("zero", 0.0, unit="s"), "0 s"),
        (Metric("gone", None, unit="s", fault="no such file"), "unknown (no such file)"),
    ],
)
def test_a_metric_is_rendered_with_its_unit_or_the_reason_why_it_is_unknown(metric: Metric, text: str) -> None:
    assert str(metric) == text


@pytest.mark.parametrize("cause", [Cause.CAPACITY, Cause.CONFIGURATION, Cause.INTERRUPTED, Cause.REGRESSION])
def test_a_judgement_refuses_a_cause_that_a_check_cannot_know(cause: Cause) -> None:
    with pytest.raises(ValueError, match=f"internal, infrastructure, product, timeout, not {cause}"):
        Judgement(False, "bad", cause=cause)
