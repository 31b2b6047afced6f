"""The answer equals the expected one in each field that the case gives: text, message, stop reason, counts and tokens.

Logprobs are not compared, because they differ between machines: see the comparator `logprobs`. The order of top tokens
is not compared either, because a server without logprobs may send them in any order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pydantic import BaseModel, ConfigDict

from toolbox.ground.kit.server_answers import Generation, Token, quoted
from toolbox.ground.model.model_answers import Mismatch, first_divergence, message_mismatches, text_mismatch

_TOKENS: Final = {"tokens": "token", "input_tokens": "input token"}
_COUNTS_AND_REASONS: Final = ("stop_reason", "stop_sequence", "input_token_count", "generated_token_count", "seed")
_LISTS: Final = ("token_ids", "offsets")
_OF_TOKEN: Final = ("rank", "id", "bytes")
_MAX_SHOWN: Final = 10  # numbers of a list


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
    for name in _COUNTS_AND_REASONS:
        wanted, given = getattr(expected, name), getattr(actual, name)
        if wanted is not None and wanted != given:
            yield Mismatch(f"{name} is {_shown(given)}, expected {_shown(wanted)}")
    yield from message_mismatches(expected, actual)
    for name in _LISTS:
        numbers, others = getattr(expected, name), getattr(actual, name) or ()
        if numbers is not None and numbers != others:
            yield _of_lists(name, numbers, others)
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
        for name in _OF_TOKEN:
            mine, other = getattr(wanted, name), getattr(given, name)
            if mine is not None and mine != other:
                return Mismatch(f"{word} {number} has {name} {_listed(other)}, expected {_listed(mine)}")
        texts, others = ({token.text for token in side.top} for side in (wanted, given))
        if wanted.top and texts != others and all(token.logprob is None for token in wanted.top):
            missing, extra = sorted(texts - others), sorted(others - texts)
            return Mismatch(f"the top tokens of {word} {number} lack {missing} and have {extra}")
        if (top := _other_top(wanted, given)) is not None:
            return Mismatch(f"the top token {quoted(top.text)} of {word} {number} has another id or other bytes")
    return None


def _other_top(wanted: Token, given: Token) -> Token | None:
    """Return an expected top token whose id or bytes none of the top tokens with the same text has."""
    for top in wanted.top:
        others = [other for other in given.top if other.text == top.text]
        if others and not any(top.id in (None, other.id) and top.bytes in (None, other.bytes) for other in others):
            return top
    return None


def _of_lists(name: str, expected: Sequence[object], actual: Sequence[object]) -> Mismatch:
    pairs = zip(expected, actual, strict=False)
    index = next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(expected), len(actual)))
    here, there = (str(side[index]) if index < len(side) else "the end" for side in (expected, actual))
    return Mismatch(f"{name} differs at item {index + 1}: {there}, expected {here}")


def _listed(value: object) -> str:
    if not isinstance(value, tuple):
        return str(value)
    more = ", ..." if len(value) > _MAX_SHOWN else ""
    return f"[{', '.join(map(str, value[:_MAX_SHOWN]))}{more}]"


def _shown(value: object) -> str:
    return quoted(value) if isinstance(value, str) else str(value)
