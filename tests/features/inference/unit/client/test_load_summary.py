"""The figures of a load are those that a calculation by hand gives."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolbox.features.inference.client.load_generator import Sample, Step
from toolbox.features.inference.client.load_summary import (
    MAX_MESSAGES,
    OTHER_MESSAGES,
    Distribution,
    Figures,
    Objectives,
    Summary,
    Times,
    percentile,
)
from toolbox.features.inference.client.token_times import Tokens

STEP = Step(rate=1, seconds=10, warm_up_seconds=2)
# First token after 1 s, then one after 0.5 s, then two after another 1 s.
SAMPLE = Sample(arrived=3.0, sent=3.25, ended=5.75, tokens=[Tokens(4.0, 1), Tokens(4.5, 1), Tokens(5.5, 2)])
FAST = Sample(arrived=4.0, sent=4.0, ended=4.5, tokens=[Tokens(4.25, 1)])
WARM = Sample(arrived=1.0, sent=1.0, ended=2.5, tokens=[Tokens(1.5, 1), Tokens(2.5, 1)])
FAILED = Sample(arrived=5.0, sent=5.0, ended=9.0, tokens=[Tokens(6.0, 1)], error="half a stream")
LATE = Sample(arrived=9.0, sent=9.0, ended=12.0, tokens=[Tokens(9.5, 1), Tokens(11.0, 1)])


def figures(samples: Sequence[Sample], step: Step = STEP, objectives: Objectives | None = None) -> Figures:
    summary = Summary(step, objectives or Objectives())
    for sample in samples:
        summary.add(sample)
    return summary.figures()


def distribution(values: Sequence[float], most: int = 1000) -> Distribution:
    times = Times(most)
    for value in values:
        times.add(value)
    return times.distribution()


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


def test_answers_after_the_step_are_no_throughput() -> None:
    found = figures([LATE, WARM, SAMPLE], STEP, Objectives(end_to_end=10))
    assert (found.requests, found.errors) == (2, 0)
    assert found.completed_rate == found.goodput == 2 / 8  # the answer to the request of the warm-up came in time
    assert found.end_to_end.samples == 2


def test_an_answer_without_a_token_does_not_meet_an_objective_for_the_first_token() -> None:
    empty = Sample(arrived=3.0, sent=3.0, ended=3.1)
    assert figures([empty], STEP, Objectives(first_token=1)).goodput == 0
    assert figures([empty], STEP, Objectives(end_to_end=1)).goodput == 1 / 8


def test_several_texts_of_a_request_have_gaps_of_their_own() -> None:
    tokens = [Tokens(4.0, 1, 0), Tokens(4.0, 1, 1), Tokens(4.5, 1, 0), Tokens(4.5, 2, 1)]
    found = figures([replace(SAMPLE, tokens=tokens)])
    assert (found.between_tokens.samples, found.between_tokens.largest) == (3, 0.5)
    assert found.between_tokens.mean == found.per_token.mean == pytest.approx(1 / 3)


def test_a_timer_that_is_early_is_not_a_negative_delay() -> None:
    assert figures([replace(SAMPLE, sent=3.0 - 1e-9)]).client_delay.percentiles[50] is None
    assert figures([replace(SAMPLE, sent=3.0 - 1e-9)]).client_delay.largest == 0


def test_a_concurrency_has_the_delays_of_a_timer_after_the_warm_up() -> None:
    summary = Summary(Step(concurrency=1, seconds=10, warm_up_seconds=2))
    summary.add(SAMPLE)
    for time, delay in ((1.0, 9.0), (2.0, 0.5), (10.0, 9.0)):
        summary.add_client_delay(time, delay)
    assert (summary.figures().client_delay.samples, summary.figures().client_delay.mean) == (1, 0.5)


def test_errors_are_counted_up_to_a_number_of_different_messages() -> None:
    found = figures([replace(FAILED, error=f"{number % 150}" * 5000) for number in range(300)])
    assert len(found.error_messages) == MAX_MESSAGES
    assert found.errors == sum(found.error_messages.values()) == 300
    assert next(iter(found.error_messages)) == OTHER_MESSAGES
    assert max(map(len, found.error_messages)) == 1000


def test_many_values_keep_their_mean_and_nearly_their_percentiles() -> None:
    found = distribution([number / 20_000 for number in range(20_000)], most=1000)
    assert (found.samples, found.largest) == (1000, 19_999 / 20_000)
    assert found.mean == pytest.approx(0.5, abs=1e-4)
    assert found.percentiles[90] == pytest.approx(0.9, abs=0.03)


TIMES = st.floats(0, 20).map(lambda time: round(time, 3))


@st.composite
def random_samples(draw: st.DrawFn) -> Sample:
    arrived = draw(st.floats(0, 9.999))
    sent = arrived + draw(st.floats(0, 1))
    times = sorted(sent + draw(TIMES) for _ in range(draw(st.integers(0, 6))))
    tokens = [Tokens(time, draw(st.integers(1, 3)), draw(st.integers(0, 1))) for time in times]
    ended = (times[-1] if times else sent) + draw(st.floats(0, 3))
    error = draw(st.sampled_from([None, None, None, "full", "late"]))
    return Sample(arrived=arrived, sent=sent, ended=ended, tokens=tokens, error=error)


def gaps_of(sample: Sample) -> list[float]:
    """Restate `between_tokens`: each token after the first chunk of its text waits an equal part of the time."""
    found: list[float] = []
    for text in (0, 1):
        chunks = [tokens for tokens in sample.tokens if tokens.generation == text]
        for before, after in itertools.pairwise(chunks):
            found += [(after.time - before.time) / after.number] * after.number
    return found


@given(st.lists(random_samples(), max_size=30), st.sampled_from([0.0, 2.0, 9.0]))
def test_figures_are_those_of_a_simple_calculation(samples: list[Sample], warm_up: float) -> None:
    step = Step(rate=1, seconds=10, warm_up_seconds=warm_up)
    limits = Objectives(first_token=5, per_token=1.0000005, end_to_end=8)  # no mean of the gaps is near 1.0000005
    found = figures(samples, step, limits)
    seconds = 10 - warm_up
    measured = [sample for sample in samples if sample.arrived >= warm_up]
    whole = [sample for sample in measured if sample.error is None]
    in_time = [sample for sample in samples if sample.error is None and warm_up <= sample.ended < 10]
    good = [
        sample
        for sample in in_time
        if sample.tokens
        and sample.tokens[0].time - sample.arrived <= 5
        and statistics.fmean([*gaps_of(sample)] or [0]) <= 1.0000005
        and sample.ended - sample.arrived <= 8
    ]
    numbers = [tokens.number for sample in samples for tokens in sample.tokens if warm_up <= tokens.time < 10]
    assert (found.requests, found.errors) == (len(measured), len(measured) - len(whole))
    assert found.offered_rate == len(measured) / seconds
    assert found.completed_rate == len(in_time) / seconds
    assert found.goodput * seconds == pytest.approx(len(good))
    assert found.tokens_per_second == sum(numbers) / seconds
    assert found.goodput <= found.completed_rate
    all_gaps = [gap for sample in whole for gap in gaps_of(sample)]
    for distribution_, values in (
        (found.first_token, [sample.tokens[0].time - sample.arrived for sample in whole if sample.tokens]),
        (found.between_tokens, all_gaps),
        (found.per_token, [statistics.fmean(gaps_of(sample)) for sample in whole if gaps_of(sample)]),
        (found.end_to_end, [sample.ended - sample.arrived for sample in whole]),
        (found.client_delay, [sample.sent - sample.arrived for sample in measured]),
    ):
        assert distribution_.samples == len(values)
        assert distribution_.largest == pytest.approx(max(values, default=None))
        assert distribution_.mean == pytest.approx(statistics.fmean(values) if values else None)
        assert distribution_.percentiles[50] == pytest.approx(statistics.median(values) if len(values) > 1 else None)


def test_refused_requests_are_counted_apart_from_errors() -> None:
    refused = replace(FAILED, error="busy: later", tokens=(), is_refused=True)
    found = figures([SAMPLE, FAILED, refused, replace(SAMPLE, is_resent=True)])
    assert (found.requests, found.errors, found.refused, found.resent) == (4, 1, 1, 1)
    assert found.error_messages == {"half a stream": 1}
    assert (found.completed_rate, found.end_to_end.samples) == (2 / 8, 2)
