"""The differences between two answers of a server, or between an answer and the one that a case file expects."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from toolbox.ground.kit.server_answers import Generation, Token, ToolCall, quoted

_MESSAGE_TEXTS: Final = ("role", "reasoning_content", "refusal")  # of a chat message besides its content
_CONTEXT: Final = 8  # tokens before and after the first divergence
_CHARACTERS: Final = 40  # characters before and after the first divergence
_MAX_TOP: Final = 10  # candidates that the evidence names
_CALL_TEXTS: Final = ("name", "id", "type")  # of a call of a tool
_LONGEST_ARGUMENTS: Final = 200  # characters


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Why an answer is not as expected.

    Args:
        message: one line that names the difference.
        evidence: further lines: the first divergence with its context.
    """

    message: str
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first position at which two sequences of tokens differ.

    Args:
        index: the position, counted from 0. It is the length of the shorter sequence if that is the beginning of the
            other one.
    """

    index: int
    expected: Sequence[Token]
    actual: Sequence[Token]

    def mismatch(self, what: str = "token") -> Mismatch:
        """Return the mismatch with its evidence: both tokens, what surrounds them, and the known top tokens."""
        expected, actual = (_at(tokens, self.index) for tokens in (self.expected, self.actual))
        message = f"{what} {self.index + 1} is {_named(actual)}, expected {_named(expected)}"
        lines = [
            f"expected: {self._context(self.expected)}",
            f"actual:   {self._context(self.actual)}",
            *_top("expected", expected),
            *_top("actual", actual),
        ]
        return Mismatch(message, tuple(lines))

    def _context(self, tokens: Sequence[Token]) -> str:
        start = max(0, self.index - _CONTEXT)
        shown = [quoted(token.text) for token in tokens[start : self.index]]
        end = tokens[self.index + 1 : self.index + 1 + _CONTEXT]
        here = _at(tokens, self.index)
        shown += [f">>{quoted(here.text) if here else 'the end'}<<", *(quoted(token.text) for token in end)]
        more = "... " if start else ""
        return f"{more}{' '.join(shown)}{' ...' if len(tokens) > self.index + 1 + _CONTEXT else ''}"


def first_divergence(
    expected: Sequence[Token], actual: Sequence[Token], key: Callable[[Token], object] = lambda token: token.text
) -> Divergence | None:
    """Return the first position at which two sequences of tokens differ; None if they are equal."""
    same = (key(mine) == key(other) for mine, other in zip(expected, actual, strict=False))
    index = next((index for index, is_same in enumerate(same) if not is_same), None)
    if index is None and len(expected) == len(actual):
        return None
    return Divergence(min(len(expected), len(actual)) if index is None else index, expected, actual)


def text_mismatch(expected: Generation, actual: Generation) -> Mismatch | None:
    """Return the first difference between two texts; None if they are equal. Tokens are named if both are known."""
    mine, other = expected.text or "", actual.text or ""
    if mine == other:
        return None
    index = next(
        (index for index, (a, b) in enumerate(zip(mine, other, strict=False)) if a != b), min(len(mine), len(other))
    )
    evidence = [f"expected: {_excerpt(mine, index)}", f"actual:   {_excerpt(other, index)}"]
    divergence = first_divergence(expected.tokens, actual.tokens) if expected.tokens and actual.tokens else None
    if divergence is not None:
        named = divergence.mismatch()
        return Mismatch(f"the text differs at character {index + 1}: {named.message}", (*evidence, *named.evidence))
    evidence += list(_token_at(actual, index))
    here, there = (quoted(text[index : index + 1]) if index < len(text) else "the end" for text in (mine, other))
    return Mismatch(f"the text differs at character {index + 1}: {there}, expected {here}", tuple(evidence))


def message_mismatches(expected: Generation, actual: Generation) -> Iterator[Mismatch]:
    """Yield the differences between two chat messages besides their content. The arguments of tools are JSON values."""
    for name in _MESSAGE_TEXTS:
        wanted, given = getattr(expected, name), getattr(actual, name) or ""
        if wanted is not None and wanted != given:
            yield Mismatch(f"{name} is {quoted(given)}, expected {quoted(wanted)}")
    if expected.tool_calls is not None:
        yield from _call_mismatches(expected.tool_calls, actual.tool_calls or ())


def _call_mismatches(expected: Sequence[ToolCall], actual: Sequence[ToolCall]) -> Iterator[Mismatch]:
    if len(expected) != len(actual):
        shown = [", ".join(quoted(call.name or "") for call in calls) or "no tool" for calls in (actual, expected)]
        yield Mismatch(f"the answer calls {shown[0]}, expected {shown[1]}")
        return
    for number, (wanted, given) in enumerate(zip(expected, actual, strict=True), start=1):
        for name in _CALL_TEXTS:
            text, other = getattr(wanted, name), getattr(given, name) or ""
            if text is not None and text != other:
                yield Mismatch(f"the {name} of tool call {number} is {quoted(other)}, expected {quoted(text)}")
        if wanted.arguments is None and given.arguments and not _is_json(given.arguments):
            arguments = quoted(given.arguments, _LONGEST_ARGUMENTS)
            yield Mismatch(f"the arguments of tool call {number} are {arguments}, which is not JSON")
        if wanted.arguments is not None and not _are_same_arguments(wanted.arguments, given.arguments or ""):
            texts = (wanted.arguments, given.arguments or "")
            mine, other = (quoted(text, _LONGEST_ARGUMENTS) for text in texts)
            how = "" if _is_json(texts[1]) else ", which is not JSON"
            yield Mismatch(f"the arguments of tool call {number} are {other}{how}, expected {mine}")


def _are_same_arguments(expected: str, actual: str) -> bool:
    try:
        return same_json(json_value(expected), json_value(actual))
    except (ValueError, RecursionError):
        return expected == actual


def _is_json(text: str) -> bool:
    try:
        json_value(text)
    except ValueError:
        return False
    return True


def json_value(text: str) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: the text is not JSON, has a key twice, or has a number that JSON does not have.
    """
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a number of JSON")
    return number


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has a key twice")
    return found


_DECODER: Final = json.JSONDecoder(parse_constant=_finite, parse_float=_finite, object_pairs_hook=_object)


def same_json(expected: Any, actual: Any) -> bool:
    """Return whether two JSON values are equal. Python's `==` also holds for `1` and `true`."""
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        return expected.keys() == actual.keys() and all(same_json(expected[name], actual[name]) for name in expected)
    if isinstance(expected, list) and isinstance(actual, list):
        return len(expected) == len(actual) and all(map(same_json, expected, actual))
    return isinstance(expected, bool) is isinstance(actual, bool) and bool(expected == actual)


def _at(tokens: Sequence[Token], index: int) -> Token | None:
    return tokens[index] if index < len(tokens) else None


def _named(token: Token | None) -> str:
    return str(token) if token is not None else "the end"


def _top(whose: str, token: Token | None) -> Iterator[str]:
    if token is not None and token.top:
        rank = f" (rank {token.rank})" if token.rank is not None else ""
        yield f"top tokens, {whose}{rank}: {', '.join(map(str, token.top[:_MAX_TOP]))}"


def _excerpt(text: str, index: int) -> str:
    start, end = max(0, index - _CHARACTERS), index + _CHARACTERS
    before, after = repr(text[start:index])[1:-1], repr(text[index:end])[1:-1]
    return f"{'...' if start else ''}{before}>>{after}{'...' if end < len(text) else ''}"


def _token_at(actual: Generation, index: int) -> Iterator[str]:
    """Yield the token of the answer that contains a character, if the tokens make up the text."""
    length = 0
    for number, token in enumerate(actual.tokens or (), start=1):
        length += len(token.text)
        if not (actual.text or "").startswith(token.text, length - len(token.text)):
            return
        if length > index:
            yield f"the character is in token {number} of the answer: {token}"
            yield from _top("actual", token)
            return
