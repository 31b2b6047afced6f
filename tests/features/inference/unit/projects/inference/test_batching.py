"""Requests join a running batch, leave it when they end, and do not influence one another."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reference_server.batching import Batch, Job
from reference_server.generation import (
    Event,
    Expired,
    Failed,
    Generated,
    Limits,
    Options,
    Sampling,
    Started,
    StopReason,
)
from reference_server.model import Model
from reference_server.vocabulary import Vocabulary
from tests.features.inference.unit.projects.inference.models import CountingModel

LETTERS = Vocabulary("abcdefghijklmnopqrstuvwxyz")
LIMITS = Limits(max_sequence_length=32, max_new_tokens=30)


def job(text: str, vocabulary: Vocabulary = LETTERS, arrival: float = 0.0, **options: Any) -> Job:
    return Job(LIMITS.prepare(vocabulary.encode(text), Options(**options)), vocabulary, arrival)


def finished(batch: Batch, *jobs: Job, now: float = 0.0) -> list[list[Event]]:
    """Add some jobs, work until the batch is empty, and return the events of each job."""
    for added in jobs:
        batch.add(added)
    events: dict[Job, list[Event]] = {added: [] for added in jobs}
    while batch.has_jobs:
        for owner, event in batch.step(now):
            events[owner].append(event)
    return list(events.values())


def text_of(events: Sequence[Event]) -> str:
    return LETTERS.decode(event.token for event in events if isinstance(event, Generated))


def reasons(events: Sequence[Event]) -> list[StopReason | None]:
    return [event.stop_reason for event in events if isinstance(event, Generated)]


@pytest.fixture(name="counting")
def _counting() -> CountingModel:
    return CountingModel(len(LETTERS))


def test_a_text_is_continued_up_to_its_limit(counting: CountingModel) -> None:
    ((started, *generated),) = finished(Batch(counting, 1), job("abc", max_new_tokens=4))
    assert isinstance(started, Started)
    assert text_of(generated) == "defg"
    assert reasons(generated) == [None, None, None, StopReason.MAX_TOKENS]


def test_a_text_ends_where_the_model_has_no_room_for_more(counting: CountingModel) -> None:
    (events,) = finished(Batch(counting, 1), job("a" * 29, max_new_tokens=10))
    assert text_of(events) == "bcd"
    assert reasons(events)[-1] is StopReason.TOKEN_LIMIT


def test_sequences_join_and_leave_between_steps(counting: CountingModel) -> None:
    batch = Batch(counting, 2)
    batch.add(job("a", max_new_tokens=3))
    batch.step(0)
    batch.add(job("k", max_new_tokens=2))
    batch.add(job("s", max_new_tokens=1))  # waits for a slot
    while batch.has_jobs:
        batch.step(0)
    first, second = 1, 0
    assert counting.steps == [
        [first],  # reads a
        [first],
        [second],  # reads k
        [first, second],  # both end
        [second],  # reads s, which needs no further step
    ]


LONG = Limits(max_sequence_length=1000, max_new_tokens=900)


def long_job(text: str, **options: Any) -> Job:
    return Job(LONG.prepare(LETTERS.encode(text), Options(**options)), LETTERS, 0.0)


def test_a_long_prompt_does_not_stop_the_other_sequences(counting: CountingModel) -> None:
    batch = Batch(counting, 2)
    short = long_job("a", max_new_tokens=9)
    batch.add(short)
    batch.step(0)
    batch.add(long_job("abcdefgh" * 40, max_new_tokens=1, input_details=True))
    steps = [batch.step(0) for _ in range(3)]
    assert [[type(event) for owner, event in step if owner is short] for step in steps] == [[Generated]] * 3
    assert counting.parts[1:] == [(0, 128), (128, 128), (256, 64)]
    started, generated = (event for owner, event in steps[2] if owner is not short)
    assert isinstance(started, Started)
    assert [detail and detail.rank for detail in started.input_details] == [None, *([1] * 7 + [2]) * 39, *[1] * 7]
    assert text_of([generated]) == "i"


def test_a_prompt_of_one_part_and_a_token_is_read_to_its_end(counting: CountingModel) -> None:
    (events,) = finished(Batch(counting, 1), long_job("a" * 128 + "k", max_new_tokens=2))
    assert counting.parts == [(0, 128), (128, 1)]
    assert text_of(events) == "lm"


def test_a_job_that_is_removed_while_its_prompt_is_read_frees_its_place(counting: CountingModel) -> None:
    batch = Batch(counting, 1)
    long = long_job("a" * 500)
    batch.add(long)
    batch.step(0)
    batch.remove(long)
    (events,) = finished(batch, job("k", max_new_tokens=1))
    assert text_of(events) == "l"


def test_a_time_limit_may_end_while_the_prompt_is_read(counting: CountingModel) -> None:
    batch = Batch(counting, 1)
    batch.add(long_job("a" * 500, time_limit=1.0))
    assert batch.step(0.5) == []
    ((_, event),) = batch.step(1.5)
    assert event == Expired()
    assert not batch.has_jobs


def test_requests_are_served_in_the_order_of_their_arrival(counting: CountingModel) -> None:
    batch = Batch(counting, 1)
    jobs = [job(letter, max_new_tokens=2) for letter in "aks"]
    for added in jobs:
        batch.add(added)
    order = []
    while batch.has_jobs:
        order += [owner for owner, event in batch.step(0) if event.is_last]
    assert order == jobs


@pytest.mark.parametrize("running", [True, False])
def test_a_removed_job_frees_its_place_at_the_next_step(counting: CountingModel, running: bool) -> None:
    batch = Batch(counting, 1)
    first, second = job("a", max_new_tokens=20), job("k", max_new_tokens=1)
    batch.add(first)
    batch.add(second)
    batch.step(0)
    batch.remove(first if running else second)
    owners = {owner for owner, _ in batch.step(0)}
    assert owners == {second if running else first}
    batch.remove(first)
    batch.remove(second)  # has ended
    assert not batch.has_jobs


def test_a_stop_sequence_ends_the_text(counting: CountingModel) -> None:
    (events,) = finished(Batch(counting, 1), job("a", max_new_tokens=20, stop_sequences=("xyz", "e", "de")))
    assert text_of(events) == "bcde"
    last = events[-1]
    assert isinstance(last, Generated)
    assert (last.stop_reason, last.stop_sequence) == (StopReason.STOP_SEQUENCE, "de")


def test_the_prompt_is_not_searched_for_stop_sequences(counting: CountingModel) -> None:
    (events,) = finished(Batch(counting, 1), job("ab", max_new_tokens=3, stop_sequences=("ab", "bc")))
    assert text_of(events) == "cde"


def test_a_stop_sequence_before_the_minimum_is_part_of_the_text(counting: CountingModel) -> None:
    options: dict[str, Any] = {"max_new_tokens": 9, "stop_sequences": ("c", "fg"), "min_new_tokens": 6}
    (events,) = finished(Batch(counting, 1), job("a", **options))
    assert text_of(events) == "bcdefg"


def test_a_stop_sequence_at_the_limit_is_the_reason(counting: CountingModel) -> None:
    (events,) = finished(Batch(counting, 1), job("a", max_new_tokens=2, stop_sequences=("c",)))
    assert reasons(events) == [None, StopReason.STOP_SEQUENCE]


def test_a_time_limit_ends_the_text_after_its_token(counting: CountingModel) -> None:
    batch = Batch(counting, 1)
    batch.add(job("a", arrival=100.0, time_limit=1.0))
    ((_, _), (_, first)) = batch.step(100.5)
    ((_, last),) = batch.step(101.0)
    assert isinstance(first, Generated)
    assert isinstance(last, Generated)
    assert (first.stop_reason, last.stop_reason) == (None, StopReason.TIME_LIMIT)


def test_a_request_that_waits_too_long_ends_without_a_token(counting: CountingModel) -> None:
    batch = Batch(counting, 1)
    batch.add(job("a", max_new_tokens=9))
    batch.step(0)
    late = job("k", time_limit=1.0)
    batch.add(late)
    assert [event for owner, event in batch.step(2.0) if owner is late] == [Expired()]


def test_scores_that_are_not_numbers_end_only_their_own_text() -> None:
    model = CountingModel(len(LETTERS), bad_token=LETTERS.characters.index("d"))
    bad, good = finished(Batch(model, 2), job("a", max_new_tokens=5), job("k", max_new_tokens=5))
    assert text_of(bad) == "bcd"
    assert isinstance(bad[-1], Failed)
    assert text_of(good) == "lmnop"


def test_details_describe_each_token(counting: CountingModel) -> None:
    options: dict[str, Any] = {"max_new_tokens": 1, "details": True, "input_details": True, "top_tokens": 1}
    ((started, generated),) = finished(Batch(counting, 1), job("abz", **options))
    assert isinstance(started, Started)
    none, follows, surprises = started.input_details
    assert none is None
    assert follows is not None
    assert surprises is not None
    assert (follows.rank, surprises.rank) == (1, 2)
    ((token, logprob),) = surprises.top
    assert token == 2
    assert logprob == pytest.approx(follows.logprob)
    assert isinstance(generated, Generated)
    assert generated.detail is not None
    assert generated.detail.rank == 1


requests: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    text=st.text("abcdefgh", min_size=1, max_size=10),
    max_new_tokens=st.integers(1, 12),
    stop_sequences=st.lists(st.text("abcde", min_size=1, max_size=2), max_size=2).map(tuple),
    sampling=st.none() | st.builds(Sampling, seed=st.integers(0, 9), top_k=st.integers(0, 5)),
    repetition_penalty=st.sampled_from([1.0, 1.3]),
    details=st.just(True),
    input_details=st.booleans(),
    top_tokens=st.integers(0, 3),
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(request=requests, others=st.lists(st.tuples(st.integers(0, 8), requests), max_size=8))
def test_a_result_does_not_depend_on_the_rest_of_the_batch(
    model: Model, vocabulary: Vocabulary, request: dict[str, Any], others: list[tuple[int, dict[str, Any]]]
) -> None:
    def made(asked: dict[str, Any]) -> Job:
        return job(asked["text"], vocabulary, **{name: value for name, value in asked.items() if name != "text"})

    (alone,) = finished(Batch(model, 4), made(request))
    batch, observed = Batch(model, 4), made(request)
    batch.add(observed)
    among_others: list[Event] = []
    for step in range(200):
        for _, asked in filter(lambda other: other[0] == step, others):
            batch.add(made(asked))
        among_others += [event for owner, event in batch.step(0) if owner is observed]
        if not batch.has_jobs and step > 8:
            break
    # Tokens, logprobs, ranks and reasons are the same, to the last bit.
    assert [dataclasses.asdict(event) for event in among_others] == [dataclasses.asdict(event) for event in alone]
