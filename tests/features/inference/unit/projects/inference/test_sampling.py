"""A token is the most probable one, or drawn with the right probability."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reference_server.generation import Options, Sampling
from reference_server.sampling import Sampler, detail, log_probabilities, probabilities

SCORES = np.log([0.4, 0.3, 0.15, 0.1, 0.05])


def draws(count: int, scores: np.ndarray = SCORES, **sampling: float) -> list[int]:
    options = Options(sampling=Sampling(**({"seed": 7} | sampling)))  # type: ignore[arg-type]
    sampler = Sampler(options, [0], len(scores))
    return [sampler.choose(scores) for _ in range(count)]


def test_without_sampling_the_most_probable_token_is_chosen() -> None:
    assert Sampler(Options(), [0], 5).choose(SCORES) == 0


def test_tokens_are_drawn_with_their_probabilities() -> None:
    counts = np.bincount(draws(20_000), minlength=5)
    np.testing.assert_allclose(counts / 20_000, [0.4, 0.3, 0.15, 0.1, 0.05], atol=0.012)  # 3.5 standard deviations


def test_a_seed_gives_the_same_tokens_again() -> None:
    assert draws(50, seed=1) == draws(50, seed=1) != draws(50, seed=2)
    assert draws(50, seed=1, index=0) != draws(50, seed=1, index=1)
    assert draws(1, seed=2**64 - 1)


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        ({"temperature": 0.5}, [0.16, 0.09, 0.0225, 0.01, 0.0025]),
        ({"temperature": 1e-9}, [1, 0, 0, 0, 0]),
        ({"temperature": 1e30}, [1, 1, 1, 1, 1]),
        ({"top_k": 2}, [4, 3, 0, 0, 0]),
        ({"top_k": 9}, [40, 30, 15, 10, 5]),
        ({"top_p": 0.69}, [4, 3, 0, 0, 0]),
        ({"top_p": 0.71}, [8, 6, 3, 0, 0]),
        ({"top_p": 1e-12}, [1, 0, 0, 0, 0]),
        # The entropy is 1.392; the information of the tokens is 0.916, 1.204, 1.897, 2.303 and 2.996.
        ({"typical_p": 0.2}, [0, 1, 0, 0, 0]),
        ({"typical_p": 0.5}, [4, 3, 0, 0, 0]),
        ({"top_k": 3, "top_p": 0.5}, [4, 3, 0, 0, 0]),
        ({"top_k": 1, "typical_p": 0.5}, [1, 0, 0, 0, 0]),
    ],
)
def test_limits_exclude_improbable_tokens(sampling: dict[str, float], expected: list[float]) -> None:
    found = probabilities(SCORES, Sampling(seed=0, **sampling))  # type: ignore[arg-type]
    np.testing.assert_allclose(found / found.sum(), np.array(expected) / sum(expected), atol=1e-6)


def test_excluded_tokens_are_never_drawn() -> None:
    assert set(draws(1000, top_k=2)) == {0, 1}


def test_a_penalty_lowers_the_scores_of_the_text_so_far() -> None:
    sampler = Sampler(Options(repetition_penalty=2.0), [0], 3)  # the prompt contains token 0
    scores = np.array([3.0, 2.0, -1.0])
    assert sampler.choose(scores) == 1
    assert sampler.choose(scores) == 0  # 1.5 instead of 1.0, now that token 1 is penalized, too
    negative = Sampler(Options(repetition_penalty=2.0), [0], 2)
    assert negative.choose(np.array([-1.0, -1.5])) == 1  # -2.0 instead of -1.5


def test_a_detail_has_the_logprob_the_rank_and_the_best_tokens() -> None:
    found = detail(SCORES, 2, 2)
    assert found.logprob == pytest.approx(math.log(0.15))
    assert found.rank == 3
    assert [token for token, _ in found.top] == [0, 1]
    assert [logprob for _, logprob in found.top] == pytest.approx([math.log(0.4), math.log(0.3)])


def test_equally_probable_tokens_are_all_among_the_best() -> None:
    found = detail(np.array([1.0, 2.0, 1.0, 1.0]), 3, 2)
    assert [token for token, _ in found.top] == [1, 0, 2, 3]
    assert found.rank == 2


def test_more_best_tokens_than_the_vocabulary_has_are_all_of_it() -> None:
    assert len(detail(SCORES, 0, 20).top) == 5


def test_the_probabilities_of_all_tokens_add_up_to_one_and_their_ranks_are_different() -> None:
    scores = np.random.default_rng(0).normal(0, 5, 100)
    details = [detail(scores, token, 100) for token in range(100)]
    assert sum(math.exp(found.logprob) for found in details) == pytest.approx(1)
    assert sorted(found.rank for found in details) == list(range(1, 101))
    best, *others = details[0].top
    assert best[0] == scores.argmax()
    assert [logprob for _, logprob in others] == sorted((logprob for _, logprob in others), reverse=True)


def test_large_scores_have_finite_logprobs() -> None:
    found = log_probabilities(np.array([1e300, -1e300]))
    assert np.isfinite(found).all()
