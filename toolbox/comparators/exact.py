"""The answer equals the expected one in each field that the case gives: text, stop reason, counts, seed and tokens.

Logprobs are not compared, because they differ between machines: see the comparator `logprobs`. The order of top tokens
is not compared either, because a server without logprobs may send them in any order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pydantic import BaseModel, ConfigDict

from toolbox.model.generations import (
    COUNTS_AND_REASONS,
    Generation,
    Mismatch,
    Token,
    first_divergence,
    quoted,
    text_mismatch,
)

_TOKENS: Final = {"tokens": "token", "input_tokens": "input token"}


class Comparator(BaseModel):
    """The comparator has no fields."""

    model_config = ConfigDict(extra="forbid")

    def compare(self, expected: Generation, actual: Generation) -> Mismatch | None:
        """Compare each field that the expected answer gives."""
        mismatches = list(_mismatches(expected, actual))
        if not mismatches:
            return None
        lines = [line for mismatch in mismatches for line in mismatch.evidence]
        return Mismatch("; ".join(mismatch.message for mismatch in mismatches), tuple(lines))


def _mismatches(expected: Generation, actual: Generation) -> Iterator[Mismatch]:
    different = text_mismatch(expected, actual) if expected.text is not None else None
    if different is not None:
        yield different
    for name in COUNTS_AND_REASONS:
        wanted, given = getattr(expected, name), getattr(actual, name)
        if wanted is not None and wanted != given:
            yield Mismatch(f"{name} is {_shown(given)}, expected {_shown(wanted)}")
    for name, word in _TOKENS.items():
        tokens = getattr(expected, name)
        if tokens is None or (different is not None and name == "tokens"):  # the text differs where the tokens do
            continue
        if mismatch := _of_tokens(tokens, getattr(actual, name), word):
            yield mismatch


def _of_tokens(expected: Sequence[Token], actual: Sequence[Token] | None, word: str) -> Mismatch | None:
    if actual is None:
        return Mismatch(f"the answer has no {word}s") if expected else None
    divergence = first_divergence(expected, actual)
    if divergence is not None:
        return divergence.mismatch(word)
    for number, (wanted, given) in enumerate(zip(expected, actual, strict=True), start=1):
        if wanted.rank is not None and wanted.rank != given.rank:
            return Mismatch(f"{word} {number} has rank {given.rank}, expected {wanted.rank}")
        texts, others = ({token.text for token in side.top} for side in (wanted, given))
        if wanted.top and texts != others and all(token.logprob is None for token in wanted.top):
            missing, extra = sorted(texts - others), sorted(others - texts)
            return Mismatch(f"the top tokens of {word} {number} lack {missing} and have {extra}")
    return None


def _shown(value: object) -> str:
    return quoted(value) if isinstance(value, str) else str(value)
