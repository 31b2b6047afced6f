"""The model with its cache computes what the trained model computes, for each sequence on its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Queue

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkpoint import Checkpoint
from reference_server.model import Model, ModelError, cast, shard
from transformer import Array, Transformer, cross_entropy

Scores = tuple[Array, Array]


def test_the_scores_have_the_loss_of_the_trained_model(
    precise_model: Model, checkpoint: Checkpoint, text: list[int]
) -> None:
    targets = np.array([*text[1:], 0])
    trained = Transformer(checkpoint.shape, cast(checkpoint.parameters, "float64"))
    loss, _ = trained.loss_and_gradients(np.array([text]), targets[np.newaxis])
    found, _ = cross_entropy(precise_model.prefill(0, text), targets)
    assert found == pytest.approx(loss, rel=1e-12)


def test_one_token_at_a_time_gives_the_scores_of_the_whole_text(precise_model: Model, text: list[int]) -> None:
    whole = precise_model.prefill(0, text)
    begun = precise_model.prefill(1, text[:5])
    np.testing.assert_allclose(begun, whole[:5], rtol=1e-10)
    for position in range(5, len(text)):
        (scores,) = precise_model.decode([1], [text[position]], [position])
        np.testing.assert_allclose(scores, whole[position], rtol=1e-10)


def test_a_text_that_is_read_in_parts_gives_the_scores_of_the_whole_text(precise_model: Model, text: list[int]) -> None:
    whole = precise_model.prefill(0, text)
    parts = [precise_model.prefill(1, text[start : start + 7], start) for start in range(0, len(text), 7)]
    np.testing.assert_allclose(np.concatenate(parts), whole, rtol=1e-10)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.permutations(range(4)), st.lists(st.integers(1, 9), min_size=4, max_size=4))
def test_no_bit_depends_on_the_other_sequences_or_on_the_slot(
    model: Model, order: list[int], lengths: list[int]
) -> None:
    tokens = np.random.default_rng(sum(lengths)).integers(0, 30, (4, 12)).tolist()
    alone = []
    for row in range(4):
        begun = model.prefill(3, tokens[row][: lengths[row]])
        alone.append((begun, model.decode([3], [tokens[row][lengths[row]]], [lengths[row]])[0]))
    for slot, row in enumerate(order):
        assert np.array_equal(model.prefill(slot, tokens[row][: lengths[row]]), alone[row][0])
    together = model.decode(range(4), [tokens[row][lengths[row]] for row in order], [lengths[row] for row in order])
    for slot, row in enumerate(order):
        assert np.array_equal(together[slot], alone[row][1])


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-4), ("float16", 0.2)])
def test_shards_compute_the_scores_of_the_whole_model(
    checkpoint: Checkpoint, text: list[int], dtype: str, tolerance: float, count: int
) -> None:
    parameters = cast(checkpoint.parameters, dtype)
    whole = Model(checkpoint.shape, parameters, slots=1, length=32)
    expected = whole.prefill(0, text[:20]), whole.decode([0], [text[20]], [20])
    found = in_threads(
        count,
        lambda rank, add_up: both_ways(
            Model(
                checkpoint.shape,
                shard(checkpoint.shape, parameters, rank=rank, count=count),
                slots=1,
                length=32,
                add_up=add_up,
            ),
            text,
        ),
    )
    for scores in found:  # every shard knows the result
        np.testing.assert_allclose(scores[0], expected[0], atol=tolerance)
        np.testing.assert_allclose(scores[1], expected[1], atol=tolerance)


def both_ways(model: Model, text: list[int]) -> Scores:
    return model.prefill(0, text[:20]), model.decode([0], [text[20]], [20])


def in_threads(count: int, work: Callable[[int, Callable[[Array], Array]], Scores]) -> list[Scores]:
    """Run the shards of a model in threads, which add up their parts."""
    barrier = threading.Barrier(count)
    parts: dict[int, Array] = {}
    results: Queue[Scores] = Queue()

    def run(rank: int) -> None:
        def add_up(part: Array) -> Array:
            parts[rank] = part
            barrier.wait()
            total: Array = sum(parts[rank] for rank in range(1, count)) + parts[0]
            barrier.wait()
            return total

        results.put(work(rank, add_up))

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results.get_nowait() for _ in range(count)]


def test_float16_is_close_to_float32(checkpoint: Checkpoint, text: list[int]) -> None:
    scores = []
    for dtype in ("float32", "float16"):
        model = Model(checkpoint.shape, cast(checkpoint.parameters, dtype), slots=1, length=32)
        scores.append(model.prefill(0, text))
        assert scores[-1].dtype == dtype
    assert 0 < np.abs(scores[0] - scores[1]).max() < 0.2


def test_squares_that_are_too_large_for_float16_do_not_change_the_result(checkpoint: Checkpoint) -> None:
    parameters = checkpoint.parameters | {"tokens": 2000 * checkpoint.parameters["tokens"]}
    assert 300 < np.abs(parameters["tokens"]).max() < 65504
    single, half = (
        Model(checkpoint.shape, cast(parameters, dtype), slots=1, length=32).prefill(0, [1, 2, 3])
        for dtype in ("float32", "float16")
    )
    np.testing.assert_allclose(half, single, atol=0.1)


def test_parameters_that_are_too_large_for_a_type_are_refused(checkpoint: Checkpoint) -> None:
    parameters = checkpoint.parameters | {"norm.scale": np.full(16, 1e5)}
    with pytest.raises(ModelError, match=r"norm\.scale has values that are too large for float16"):
        cast(parameters, "float16")


def test_heads_must_be_divisible_among_the_shards(checkpoint: Checkpoint) -> None:
    with pytest.raises(ModelError, match="4 heads cannot be divided among 3 shards"):
        shard(checkpoint.shape, checkpoint.parameters, rank=0, count=3)
