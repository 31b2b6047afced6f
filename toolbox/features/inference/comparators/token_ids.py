"""The ids of the generated tokens equal the expected ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from toolbox.ground.kit.server_answers import Generation, Token
from toolbox.ground.model.model_answers import Mismatch, first_divergence


class Comparator(BaseModel):
    """The expected ids.

    Args:
        ids: the ids; by default those of the tokens of the expected answer.
    """

    model_config = ConfigDict(extra="forbid")

    ids: list[Annotated[int, Field(strict=True, ge=0)]] | None = None

    def compare(self, expected: Generation, actual: Generation) -> Mismatch | None:
        """Compare the ids, position by position."""
        wanted = _tokens(expected) if self.ids is None else [Token("", identity) for identity in self.ids]
        if not wanted or any(token.id is None for token in wanted):
            return Mismatch("the case gives no ids of tokens")
        given = _tokens(actual)
        if not given or any(token.id is None for token in given):
            return Mismatch("the answer has no ids of tokens")
        divergence = first_divergence(wanted, given, key=lambda token: token.id)
        return divergence.mismatch() if divergence is not None else None


def _tokens(generation: Generation) -> Sequence[Token]:
    """Return the tokens of an answer; those without a text if the answer lists only their ids."""
    tokens = generation.tokens or ()
    if tokens and all(token.id is not None for token in tokens):
        return tokens
    return [Token("", identity) for identity in generation.token_ids or ()] or tokens
