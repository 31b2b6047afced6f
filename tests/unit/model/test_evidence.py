"""A metric is rendered as text."""

import pytest

from toolbox.model.evidence import Metric


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
