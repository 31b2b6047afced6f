"""A model whose next token is always the one after the last in the vocabulary."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from transformer import Array


class CountingModel:
    """Has the interface of the model, and remembers the calls: the slots of each step, a single one for a prompt."""

    def __init__(self, vocabulary: int, *, bad_token: int = -1) -> None:
        self.vocabulary = vocabulary
        self.bad_token = bad_token  # has scores that are not numbers
        self.steps: list[Sequence[int]] = []
        self.error: Exception | None = None

    def prefill(self, slot: int, tokens: Sequence[int]) -> Array:
        return self.scores([slot], tokens)

    def decode(self, slots: Sequence[int], tokens: Sequence[int], positions: Sequence[int]) -> Array:
        assert len(slots) == len(tokens) == len(positions)
        return self.scores(slots, tokens)

    def scores(self, slots: Sequence[int], tokens: Sequence[int]) -> Array:
        if self.error:
            raise self.error
        self.steps.append(list(slots))
        following = (np.array(tokens) + 1) % self.vocabulary
        scores = np.where(np.arange(self.vocabulary) == following[:, np.newaxis], 1.0, 0.0)
        scores[np.array(tokens) == self.bad_token] = np.nan
        return scores
