"""Models for the tests of the reference server: a whole one, and one that counts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from checkpoint import Checkpoint
from reference_server.model import Model, cast, shard
from transformer import Array


def whole_model(checkpoint: Checkpoint, dtype: str) -> Model:
    """Return an unsharded model with a cache for four sequences of 32 tokens."""
    parameters = shard(checkpoint.shape, cast(checkpoint.parameters, dtype), rank=0, count=1)
    return Model(checkpoint.shape, parameters, slots=4, length=32)


class CountingModel:
    """A model whose next token is always the one after the last. It remembers the slots of each call."""

    def __init__(self, vocabulary: int, *, bad_token: int = -1) -> None:
        self.vocabulary = vocabulary
        self.bad_token = bad_token  # has scores that are not numbers
        self.steps: list[Sequence[int]] = []
        self.parts: list[tuple[int, int]] = []  # of prompts: the position and the number of tokens
        self.error: Exception | None = None

    def prefill(self, slot: int, tokens: Sequence[int], start: int) -> Array:
        self.parts.append((start, len(tokens)))
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
