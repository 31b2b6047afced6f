"""Tokens are counted by what the server tells, and keep the times of their chunks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from toolbox.features.inference.client.answer_format import NOT_FINISHED, FaultError
from toolbox.features.inference.client.token_times import TimedAnswer, Tokens
from toolbox.ground.kit.server_answers import Generation, Token

END = Generation(stop_reason="EOS_TOKEN")


def answer(parts: Sequence[Generation], raw: Mapping[str, Any] | None = None, index: int = 0) -> TimedAnswer:
    """Return an answer whose chunks come one second after the other."""
    times = iter(range(-1, len(parts) + 1))  # the first one is when the request is sent
    found = TimedAnswer(case="a", stream=True, clock=lambda: float(next(times)))
    for part in parts:
        found.add(index, part, raw or {})
    return found


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([Generation(), Generation(text="a"), Generation(text="bc")], [(1, 1), (2, 1)]),
        ([Generation(text="ab", tokens=(Token("a"), Token("b")))], [(0, 2)]),
        ([Generation(tokens=(Token("a"),)), Generation(text="a")], [(0, 1), (1, 1)]),
        ([Generation(text="a"), Generation(text="bcd", generated_token_count=4)], [(0, 1), (1, 3)]),
        ([Generation(text="a"), Generation(generated_token_count=1)], [(0, 1)]),
        ([Generation(text="a", generated_token_count=1)] * 2, [(0, 1)]),
        ([Generation(generated_token_count=1), Generation(text="é", generated_token_count=2)], [(1, 2)]),
        ([Generation(text="ab", generated_token_count=2**60)], [(0, 2)]),
    ],
)  # fmt: skip
def test_tokens_are_counted_by_what_the_server_tells(
    parts: Sequence[Generation], expected: Sequence[tuple[float, int]]
) -> None:
    assert answer(parts).tokens == [Tokens(time, count) for time, count in expected]


@pytest.mark.parametrize(
    ("chunks", "total", "expected"),
    [
        (3, 3, [1, 1, 1]),
        (3, 2, [1, 1, 1]),
        (3, 8, [1, 3, 4]),
        (1, 5, [5]),
        (4, 5, [1, 1, 1, 2]),
        (2, 2**60, [1, 19]),  # not more than the bytes of the text
    ],
)
def test_a_count_at_the_end_is_spread_over_the_later_chunks(chunks: int, total: int, expected: list[int]) -> None:
    found = answer([*[Generation(text="ten bytes!")] * chunks, Generation(generated_token_count=total), END])
    found.end_stream()
    assert [tokens.number for tokens in found.tokens] == expected


def test_listed_tokens_are_not_corrected_by_a_count() -> None:
    found = answer([Generation(text="a", tokens=(Token("a"),)), Generation(generated_token_count=2), END])
    found.end_stream()
    assert [tokens.number for tokens in found.tokens] == [1]


@pytest.mark.parametrize(
    ("delta", "number"),
    [({"role": "assistant"}, 0), ({"reasoning_content": "hm"}, 1), ({"reasoning": "hm"}, 1), ({"tool_calls": [{}]}, 1)],
)
def test_thoughts_and_calls_of_a_chat_are_tokens(delta: Mapping[str, Any], number: int) -> None:
    found = answer([Generation()], {"choices": [{"index": 1, "delta": delta}]}, index=1)
    assert len(found.tokens) == number


@pytest.mark.parametrize("raw", [{"choices": 1}, {"choices": [1]}, {"choices": [{"index": 0, "delta": 1}]}])
def test_any_json_can_be_a_chunk(raw: Mapping[str, Any]) -> None:
    assert answer([Generation()], raw).tokens == []


def test_each_text_of_a_request_is_counted_by_itself() -> None:
    found = TimedAnswer(case="a", stream=True, clock=lambda: 0.0)
    for index in (1, 0, 1):
        found.add(index, Generation(text="a", stop_reason="MAX_TOKENS"), {})
    found.end_stream()
    assert [tokens.generation for tokens in found.tokens] == [1, 0, 1]
    assert found.generation_indexes == [0, 1]


def test_half_a_stream_is_a_fault() -> None:
    with pytest.raises(FaultError, match=r"the stream ended without a stop reason$"):
        answer([Generation(text="a", stop_reason=NOT_FINISHED)]).end_stream()
    with pytest.raises(FaultError, match="without a generation"):
        answer([]).end_stream()


def test_no_text_is_kept() -> None:
    found = answer([Generation(text="a" * 1000)] * 3, {"raw": "a"})
    assert found.chunks == []
    assert "aaa" not in repr(found)
