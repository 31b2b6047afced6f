"""At the first divergence, each side's token is among the most probable tokens of the other side.

Rounding may exchange two tokens of nearly equal probability, and from there on the texts have nothing in common. So
nothing is compared after the first divergence.
"""

from __future__ import annotations

import math

from pydantic import BaseModel, ConfigDict, Field

from toolbox.ground.kit.server_answers import Generation, Token
from toolbox.ground.model.model_answers import Mismatch, first_divergence, message_mismatches, text_mismatch


class Comparator(BaseModel):
    """How close the two tokens must be.

    Args:
        top: how many of the most probable tokens count.
    """

    model_config = ConfigDict(extra="forbid")

    top: int = Field(default=2, ge=1, le=100)

    def compare(self, expected: Generation, actual: Generation) -> Mismatch | None:
        """Compare the tokens at the first divergence."""
        if not expected.tokens or not actual.tokens:
            whose = "case" if not expected.tokens else "answer"
            different = text_mismatch(expected, actual)
            if different is None:
                return next(message_mismatches(expected, actual), None)
            return Mismatch(f"{different.message}; the {whose} has no tokens", different.evidence)
        divergence = first_divergence(expected.tokens, actual.tokens)
        if divergence is None:
            different = text_mismatch(expected, actual) if expected.text is not None else None
            return different or next(message_mismatches(expected, actual), None)
        mismatch = divergence.mismatch()
        if divergence.index >= min(len(expected.tokens), len(actual.tokens)):
            return Mismatch(f"{mismatch.message}: one answer ends there", mismatch.evidence)
        wanted, given = expected.tokens[divergence.index], actual.tokens[divergence.index]
        for token, other, whose in ((given, wanted, "expected"), (wanted, given, "actual")):
            if not other.top:
                return Mismatch(f"{mismatch.message}; the {whose} top tokens are unknown", mismatch.evidence)
            if not self._is_near(token, other):
                message = f"{mismatch.message}; {token.text!r} is not among the {self.top} {whose} top tokens"
                return Mismatch(message, mismatch.evidence)
        return None

    def _is_near(self, token: Token, other: Token) -> bool:
        """Return whether a token is among the top tokens of the other side. They may be in any order."""
        ranked = sorted(other.top, key=_improbability)
        return token.text in {top.text for top in ranked[: self.top]}


def _improbability(token: Token) -> float:
    """Return the key that sorts the most probable token first, and tokens without a logprob last."""
    return math.inf if token.logprob is None or math.isnan(token.logprob) else -token.logprob
