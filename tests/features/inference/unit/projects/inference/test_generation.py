"""A request with impossible options, or without room for its text, is refused with a reason."""

from __future__ import annotations

import math
from typing import Any

import pytest

from reference_server.generation import Limits, Options, RequestError, Sampling, StopReason
from reference_server.vocabulary import Vocabulary

LIMITS = Limits(max_sequence_length=10, max_new_tokens=6)


def sampling(**changes: Any) -> dict[str, Any]:
    return {"sampling": Sampling(seed=0, **changes)}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"max_new_tokens": 7}, "max_new_tokens must be <= 6"),
        ({"max_new_tokens": 0}, "max_new_tokens must be >= 1"),
        ({"max_new_tokens": -1}, "max_new_tokens must be >= 1"),
        ({"min_new_tokens": -1}, "min_new_tokens must be >= 0"),
        ({"min_new_tokens": 4, "max_new_tokens": 3}, "min_new_tokens must be <= max_new_tokens"),
        ({"min_new_tokens": 7}, "min_new_tokens must be <= 6 after a prompt of 3 tokens"),
        ({"repetition_penalty": 0.0}, "repetition_penalty must be > 0.0"),
        ({"repetition_penalty": math.nan}, "repetition_penalty must be > 0.0"),
        ({"repetition_penalty": math.inf}, "repetition_penalty must be between 1e-06 and 1000000.0"),
        ({"repetition_penalty": 1e-320}, "repetition_penalty must be between 1e-06 and 1000000.0"),
        ({"truncate_input_tokens": -1}, "truncate_input_tokens must be >= 0"),
        ({"top_tokens": 21}, "top_tokens must be between 0 and 20"),
        ({"stop_sequences": ["a", ""]}, "stop_sequences can have at most 6 non-empty texts"),
        ({"stop_sequences": ["a"] * 7}, "stop_sequences can have at most 6 non-empty texts"),
        ({"stop_sequences": ["é" * 121]}, "of at most 240 UTF-8 bytes each"),
        (sampling(temperature=0.0), "temperature must be a number above 0"),
        (sampling(temperature=math.nan), "temperature must be a number above 0"),
        (sampling(temperature=math.inf), "temperature must be a number above 0"),
        (sampling(top_p=0.0), "top_p must be > 0.0 and <= 1.0"),
        (sampling(top_p=1.1), "top_p must be > 0.0 and <= 1.0"),
        (sampling(top_p=math.nan), "top_p must be > 0.0 and <= 1.0"),
        (sampling(typical_p=-0.1), "typical_p must be > 0.0 and <= 1.0"),
        (sampling(top_k=-1), "top_k must be strictly positive"),
    ],
)
def test_an_impossible_option_is_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        LIMITS.prepare([1, 2, 3], Options(**options))


@pytest.mark.parametrize(
    ("length", "reason"),
    [(0, "prompt must contain at least one"), (10, "shorter than 10 tokens, not 10"), (99, "shorter than 10")],
)
def test_a_prompt_must_fit(length: int, reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        LIMITS.prepare([0] * length, Options())


def test_the_minimum_must_fit_after_the_prompt() -> None:
    with pytest.raises(RequestError, match="min_new_tokens must be <= 2 after a prompt of 8 tokens"):
        LIMITS.prepare([0] * 8, Options(min_new_tokens=3))


@pytest.mark.parametrize(
    ("prompt", "wanted", "length", "reason"),
    [
        (3, None, 6, StopReason.MAX_TOKENS),
        (4, 6, 6, StopReason.MAX_TOKENS),
        (5, 6, 5, StopReason.TOKEN_LIMIT),
        (9, None, 1, StopReason.TOKEN_LIMIT),
    ],
)
def test_the_length_is_limited_by_the_room(prompt: int, wanted: int | None, length: int, reason: StopReason) -> None:
    request = LIMITS.prepare([0] * prompt, Options(max_new_tokens=wanted))
    assert (request.length, request.length_reason) == (length, reason)


def test_truncation_keeps_the_end_of_the_prompt() -> None:
    assert LIMITS.prepare(range(99), Options(truncate_input_tokens=2)).tokens == range(97, 99)
    assert LIMITS.prepare(range(3), Options(truncate_input_tokens=5)).tokens == range(3)


def test_an_unknown_character_is_named_with_its_position() -> None:
    vocabulary = Vocabulary("ab")
    assert vocabulary.decode(vocabulary.encode("abba")) == "abba"
    with pytest.raises(RequestError, match=r"prompt contains the character '\\xe9' at position 2") as caught:
        vocabulary.encode("abéc")
    assert caught.value.parameter == "prompt"
