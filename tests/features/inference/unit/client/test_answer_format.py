"""The line of an answer has the form that the check of the answers reads."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from toolbox.features.inference.client import json_values, openai_bodies
from toolbox.features.inference.client.answer_format import Answer, FaultError, Limits, merged, server_error
from toolbox.features.inference.client.key_mask import KeyMask
from toolbox.ground.kit.server_answers import Generation, ServerError, Token

KEY = "sk-very-secret"
TOKEN = Token("b", id=5, logprob=-1.5, rank=2, top=(Token("c", 6, -0.5),))
TOKEN_LINE = {
    "text": "b",
    "id": 5,
    "logprob": -1.5,
    "rank": 2,
    "top": [{"text": "c", "id": 6, "logprob": -0.5}],
}


def content(answer: Answer) -> Any:
    return json.loads(answer.line())


def test_a_whole_answer() -> None:
    answer = Answer(case="a", stream=False, response={"text": "b"})
    answer.generations = [
        Generation(
            text="b",
            stop_reason="MAX_TOKENS",
            input_token_count=1,
            generated_token_count=1,
            seed=7,
            tokens=(TOKEN,),
            input_tokens=(Token("a"),),
        )
    ]
    assert content(answer) == {
        "case": "a",
        "stream": False,
        "seconds": 0.0,
        "error": None,
        "fault": None,
        "response": {"text": "b"},
        "generations": [
            {
                "text": "b",
                "stop_reason": "MAX_TOKENS",
                "input_token_count": 1,
                "generated_token_count": 1,
                "seed": 7,
                "tokens": [TOKEN_LINE],
                "input_tokens": [{"text": "a"}],
            }
        ],
        "refusals": 0,
    }


def test_a_stream_has_its_chunks() -> None:
    answer = Answer(case="a", stream=True)
    answer.add(0, Generation(text="b", stop_reason="NOT_FINISHED", tokens=(TOKEN,)), {"raw": 1})
    answer.add(0, Generation(stop_reason="EOS_TOKEN", generated_token_count=1), {"raw": 2})
    answer.end_stream()
    line = content(answer)
    assert line["generations"] == [
        {"text": "b", "stop_reason": "EOS_TOKEN", "generated_token_count": 1, "tokens": [TOKEN_LINE]}
    ]
    first, second = line["chunks"]
    assert first.pop("seconds") <= second.pop("seconds")
    assert first == {"index": 0, "text": "b", "tokens": [TOKEN_LINE], "raw": {"raw": 1}}
    assert second == {"index": 0, "stop_reason": "EOS_TOKEN", "generated_token_count": 1, "raw": {"raw": 2}}
    assert line["chunks_left_out"] == 0


def test_an_error() -> None:
    answer = Answer(case="a", stream=False, error=ServerError("INVALID_ARGUMENT", "no"))
    assert content(answer)["error"] == {"code": "INVALID_ARGUMENT", "message": "no"}


def test_a_long_fault_is_cut() -> None:
    assert len(content(Answer(case="a", stream=False, fault="x" * 10_000))["fault"]) == 1000


def test_a_line_is_ascii_without_line_breaks() -> None:
    answer = Answer(case="a\nb\u2028\U0001f600", stream=False)
    assert answer.line().isascii()
    assert len(answer.line().splitlines()) == 1
    assert content(answer)["case"] == "a\nb\u2028\U0001f600"


def test_chunks_beyond_the_limit_still_count_for_the_generation() -> None:
    answer = Answer(case="a", stream=True, limits=Limits(chunks=1))
    for _ in range(3):
        answer.add(0, Generation(text="b", stop_reason="MAX_TOKENS"), {})
    answer.end_stream()
    assert answer.generations[0].text == "bbb"
    assert (len(answer.chunks), answer.chunks_left_out) == (1, 2)


def test_later_counts_and_reasons_replace_earlier_ones() -> None:
    parts = [
        Generation(input_token_count=3, seed=1),
        Generation(text="a", generated_token_count=1),
        Generation(text="b", generated_token_count=2, stop_reason="MAX_TOKENS"),
        Generation(),
    ]
    assert merged(parts) == Generation(
        text="ab", input_token_count=3, generated_token_count=2, seed=1, stop_reason="MAX_TOKENS"
    )


def test_every_generation_must_end() -> None:
    answer = Answer(case="a", stream=True)
    answer.add(0, Generation(text="a", stop_reason="MAX_TOKENS"), {})
    answer.add(2, Generation(text="b"), {})
    with pytest.raises(FaultError, match="without a stop reason for answer 3 of the batch"):
        answer.end_stream()


def test_a_line_that_is_too_long_is_a_fault_without_content() -> None:
    answer = Answer(case="a", stream=True, limits=Limits(line_characters=1000), response={"a": "x" * 1000})
    answer.add(0, Generation(text="b" * 1000, stop_reason="MAX_TOKENS"), {})
    answer.end_stream()
    line = content(answer)
    assert line["fault"] == "the line of the answer is longer than 1000 characters"
    assert (line["response"], line["generations"], line["chunks"]) == (None, [], [])


def pieces(text: str, seed: int) -> list[str]:
    draw = random.Random(seed)
    cuts = sorted(draw.sample(range(1, len(text)), k=draw.randrange(1, len(text))))
    return [text[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@pytest.mark.parametrize("seed", range(50))
def test_an_answer_with_the_key_in_several_chunks_or_tokens_is_left_out(seed: int) -> None:
    parts = pieces(f"<<< {KEY}!", seed)
    raws: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": {"reasoning": part}}]} for part in parts]
    as_texts, as_raw = Answer(case="a", stream=True), Answer(case="a", stream=True)
    for part, raw in zip(parts, raws, strict=True):
        as_texts.add(0, Generation(text=part), {})
        as_texts.add(1, Generation(text="between"), {})
        as_raw.add(0, Generation(), raw)
    as_tokens = Answer(case="a", stream=False, generations=[Generation(tokens=tuple(map(Token, parts)))])
    as_logprobs = Answer(case="a", stream=False, response={"choices": [{"logprobs": {"tokens": parts}}]})
    is_whole = any(KEY in part for part in parts)
    for answer in (as_texts, as_raw, as_tokens, as_logprobs):
        line = answer.line(KeyMask(KEY))
        assert ("left out" in line) is not is_whole
        assert is_whole or not any(part in line for part in parts if len(part) > 3)
        assert KEY not in line


def test_a_stream_with_the_key_in_one_chunk_keeps_its_other_chunks() -> None:
    answer = Answer(case="a", stream=True)
    answer.add(0, Generation(text=f"the key is {KEY}."), {})
    answer.add(0, Generation(text="b", stop_reason="MAX_TOKENS"), {})
    answer.end_stream()
    line = json.loads(answer.line(KeyMask(KEY)))
    assert line["generations"][0]["text"] == "the key is ***.b"
    assert [chunk["text"] for chunk in line["chunks"]] == ["the key is ***.", "b"]
    assert line["fault"] is None


def test_the_fault_of_an_answer_with_the_key_in_parts_is_kept() -> None:
    answer = Answer(case="a", stream=True, fault="the connection was lost")
    answer.add(0, Generation(text=KEY[:4]), {})
    answer.add(0, Generation(text=KEY[4:]), {})
    assert json.loads(answer.line(KeyMask(KEY)))["fault"] == (
        "the connection was lost; the answer contains the API key in parts, and is left out"
    )


def test_the_texts_of_an_error_are_cut() -> None:
    error = server_error("c" * 10_000, "m" * 100_000)
    assert (len(error.code or ""), len(error.message or "")) == (200, 10_000)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(case="a", stream=False, fault="x" * 990 + KEY),
        Answer(case="a", stream=False, fault=json_values.excerpt("x" * 190 + KEY)),
        Answer(case="a", stream=False, error=openai_bodies.error_of_content(b"x" * 990 + KEY.encode(), 500)),
        Answer(case="a", stream=False, error=server_error("C", "x" * 9990 + KEY)),
    ],
)
def test_the_beginning_of_a_key_is_masked_where_a_fault_or_an_error_is_cut(answer: Answer) -> None:
    line = answer.line(KeyMask(KEY))
    assert "x***" in line
    assert KEY[:3] not in line
