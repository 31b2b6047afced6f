"""The choice of the next token from the scores of the model, and how probable the model found a token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from transformer import Array, softmax

from .generation import Detail, Options, Sampling

Scores = npt.NDArray[np.float64]  # of one position: a score per token of the vocabulary


class Sampler:
    """Chooses the tokens of one generation. `seen` marks the tokens of the text so far, and is kept up to date."""

    def __init__(self, options: Options, prompt: Sequence[int], vocabulary: int) -> None:
        self._sampling = options.sampling
        self._penalty = options.repetition_penalty
        self._seen = np.zeros(vocabulary, bool)
        self._seen[list(prompt)] = True
        self._generator = np.random.default_rng([self._sampling.seed, self._sampling.index]) if self._sampling else None

    def choose(self, scores: Scores) -> int:
        """Return the next token."""
        if self._penalty != 1:
            penalized = np.where(scores > 0, scores / self._penalty, scores * self._penalty)
            scores = np.where(self._seen, penalized, scores)
        if self._sampling and self._generator:
            sums = np.cumsum(probabilities(scores, self._sampling))
            token = int(np.searchsorted(sums / sums[-1], self._generator.random(), side="right"))
        else:
            token = int(scores.argmax())
        self._seen[token] = True
        return token


def probabilities(scores: Scores, sampling: Sampling) -> Scores:
    """Return the probabilities with which tokens are drawn; not normalized, and 0 for excluded tokens."""
    scores = scores / sampling.temperature
    if 0 < sampling.top_k < len(scores):
        scores = np.where(scores >= np.partition(scores, -sampling.top_k)[-sampling.top_k], scores, -np.inf)
    weights = softmax(scores)
    if sampling.top_p < 1:
        weights = _smallest_set(weights, -weights, sampling.top_p)
    if sampling.typical_p < 1:
        with np.errstate(divide="ignore", invalid="ignore"):
            information = -np.log(weights / weights.sum())
            entropy = np.nansum(weights / weights.sum() * information)
        weights = _smallest_set(weights, np.abs(information - entropy), sampling.typical_p)
    return weights.astype(np.float64)


def _smallest_set(weights: Array, order: Array, mass: float) -> Array:
    """Keep the first tokens in an order that have together at least a part of all weights, and at least one token."""
    ranking = np.argsort(order, kind="stable")
    sums = np.cumsum(weights[ranking])
    count = int(np.searchsorted(sums, mass * sums[-1])) + 1
    kept = np.zeros_like(weights)
    kept[ranking[:count]] = weights[ranking[:count]]
    return kept


def log_probabilities(scores: Scores) -> Scores:
    """Return the natural logarithms of the probabilities of all tokens."""
    shifted = scores - scores.max()
    logarithms: Scores = shifted - np.log(np.exp(shifted).sum())
    return logarithms


def detail(scores: Scores, token: int, top_tokens: int) -> Detail:
    """Return how the model judged a token, with the most probable tokens at its position."""
    logprobs = log_probabilities(scores)
    top: list[tuple[int, float]] = []
    if top_tokens:
        count = min(top_tokens, len(scores))
        threshold = np.partition(scores, -count)[-count]
        best = np.flatnonzero(scores >= threshold)
        top = [(int(other), float(logprobs[other])) for other in best[np.argsort(-scores[best], kind="stable")]]
    rank = 1 + int((scores > scores[token]).sum())
    return Detail(logprob=float(logprobs[token]), rank=rank, top=top)
