"""The figures of a load are those that a calculation by hand gives."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolbox.inference_client.load_generator import Sample, Step
from toolbox.inference_client.load_summary import Objectives, distribution, figures, percentile

STEP = Step(rate=1, seconds=10, warm_up_seconds=2)
# First token after 1 s, then one after 0.5 s, then two after another 1 s.
SAMPLE = Sample(arrived=3.0, sent=3.25, ended=5.75, tokens=[(4.0, 1), (4.5, 1), (5.5, 2)])
FAST = Sample(arrived=4.0, sent=4.0, ended=4.5, tokens=[(4.25, 1)])
WARM = Sample(arrived=1.0, sent=1.0, ended=2.5, tokens=[(1.5, 1), (2.5, 1)])
FAILED = Sample(arrived=5.0, sent=5.0, ended=9.0, tokens=[(6.0, 1)], error="half a stream")
LATE = Sample(arrived=9.0, sent=9.0, ended=12.0, tokens=[(9.5, 1), (11.0, 1)])


def test_latencies_count_from_the_arrival() -> None:
    found = figures([SAMPLE], STEP)
    assert found.first_token.mean == 1.0
    assert found.end_to_end.mean == 2.75
    assert found.client_delay.mean == 0.25
    assert found.per_token.mean == 0.5  # 3 tokens in 1.5 s after the first one
    assert found.between_tokens.samples == 3
    assert found.between_tokens.mean == 0.5


def test_the_warm_up_is_not_measured_but_its_late_tokens_are_throughput() -> None:
    found = figures([WARM, SAMPLE], STEP)
    assert found.requests == 1
    assert found.tokens_per_second == (1 + 4) / 8


def test_tokens_after_the_step_are_no_throughput() -> None:
    assert figures([LATE], STEP).tokens_per_second == 1 / 8


def test_an_error_has_no_latency_but_counts() -> None:
    found = figures([SAMPLE, FAILED], STEP)
    assert (found.requests, found.errors) == (2, 1)
    assert found.end_to_end.samples == 1
    assert (found.offered_rate, found.completed_rate) == (2 / 8, 1 / 8)


@pytest.mark.parametrize(
    ("objectives", "good"),
    [
        (Objectives(), 2),
        (Objectives(first_token=0.5), 1),
        (Objectives(first_token=1.0), 2),
        (Objectives(per_token=0.4), 1),  # one token has no time between tokens
        (Objectives(end_to_end=1), 1),
        (Objectives(end_to_end=0.1), 0),
    ],
)
def test_goodput_counts_requests_within_all_objectives(objectives: Objectives, good: int) -> None:
    assert figures([SAMPLE, FAST, FAILED], STEP, objectives).goodput == good / 8


def test_a_load_without_samples_has_no_latencies() -> None:
    found = figures([], STEP)
    assert found.end_to_end.samples == 0
    assert found.end_to_end.mean is None
    assert set(found.end_to_end.percentiles.values()) == {None}


@pytest.mark.parametrize(("percent", "fewest"), [(50, 2), (90, 10), (95, 20), (99, 100)])
def test_a_percentile_needs_samples_beyond_it(percent: int, fewest: int) -> None:
    assert distribution([1.0] * (fewest - 1)).percentiles[percent] is None
    assert distribution([1.0] * fewest).percentiles[percent] == 1.0


@given(st.lists(st.floats(0, 1e6), min_size=100, max_size=200), st.sampled_from([50, 90, 95, 99]))
def test_percentiles_are_those_of_the_standard_library(values: list[float], percent: int) -> None:
    expected = statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
    assert percentile(sorted(values), percent) == pytest.approx(expected, abs=1e-6)
