"""Requests of cases become messages of fmaas, and its responses become generations."""

from __future__ import annotations

import math
from typing import Any

import pytest

from toolbox.features.inference.client import fmaas_messages
from toolbox.features.inference.client.answer_format import FaultError, InvalidRequestError
from toolbox.features.inference.client.fmaas import generation_pb2 as fmaas
from toolbox.ground.kit.server_answers import Generation, Token


def batch(request: dict[str, Any]) -> fmaas.BatchedGenerationRequest:
    return fmaas_messages.parsed(request, fmaas.BatchedGenerationRequest)


def test_keys_may_be_in_snake_case_or_camel_case() -> None:
    snake = {"model_id": "m", "params": {"stopping": {"max_new_tokens": 3}, "truncate_input_tokens": 4}}
    camel = {"modelId": "m", "params": {"stopping": {"maxNewTokens": 3}, "truncateInputTokens": 4}}
    assert batch(snake) == batch(camel)
    assert batch(snake).params.stopping.max_new_tokens == 3


def test_an_empty_request_is_an_empty_message() -> None:
    assert batch({}).ByteSize() == 0


@pytest.mark.parametrize(
    "request_",
    [
        {"prompt": "x"},
        {"requests": [{"txt": "x"}]},
        {"requests": {"text": "x"}},
        {"requests": "x"},
        {"requests": [1]},
        {"params": {"method": "BEAM"}},
        {"params": {"stopping": {"max_new_tokens": -1}}},
        {"params": {"stopping": {"max_new_tokens": "many"}}},
        {"params": {"stopping": {"stop_sequences": "x"}}},
        {"params": {"sampling": {"temperature": [1]}}},
        {1: 2},
    ],
)
def test_a_request_that_is_no_message_is_invalid(request_: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        batch(request_)
    assert "\n" not in str(caught.value)


def test_each_text_of_a_batch_has_its_stream() -> None:
    singles = fmaas_messages.single_requests(
        batch({"requests": [{"text": "a"}, {"text": "b"}], "prefixId": "p", "params": {"method": "SAMPLE"}})
    )
    assert [single.request.text for single in singles] == ["a", "b"]
    assert all(single.prefix_id == "p" and single.params.method == fmaas.SAMPLE for single in singles)


def test_absent_fields_of_a_batch_stay_absent_in_its_streams() -> None:
    (single,) = fmaas_messages.single_requests(batch({"requests": [{"text": "a"}]}))
    assert not single.HasField("params")
    assert not single.HasField("prefix_id")


@pytest.mark.parametrize("content", [b"\xff", b"\x12\x05ab", b"\x22\x01\xff"])
def test_bytes_that_are_no_message_are_a_fault(content: bytes) -> None:
    with pytest.raises(FaultError, match="not a message GenerationResponse"):
        fmaas_messages.decoded(content, fmaas.GenerationResponse)


RESPONSE = fmaas.GenerationResponse(
    text="b",
    generated_token_count=1,
    input_token_count=2,
    stop_reason=fmaas.MAX_TOKENS,
    seed=7,
    tokens=[
        fmaas.TokenInfo(text="b", logprob=-1, rank=2, top_tokens=[fmaas.TokenInfo.TopToken(text="c", logprob=-0.5)])
    ],
    input_tokens=[fmaas.TokenInfo(text="a", logprob=math.nan)],
)


def test_a_response_has_everything_that_was_requested() -> None:
    asked = fmaas.ResponseOptions(generated_tokens=True, input_tokens=True, token_logprobs=True, top_n_tokens=1)
    assert fmaas_messages.ResponseReader(asked).whole(RESPONSE) == Generation(
        text="b",
        stop_reason="MAX_TOKENS",
        input_token_count=2,
        generated_token_count=1,
        seed=7,
        tokens=(Token("b", logprob=-1.0, rank=2, top=(Token("c", logprob=-0.5),)),),
        input_tokens=(Token("a"),),
    )


def test_what_was_not_requested_is_unknown_and_not_zero() -> None:
    asked = fmaas.ResponseOptions(generated_tokens=True)
    generation = fmaas_messages.ResponseReader(asked).whole(
        fmaas.GenerationResponse(tokens=[fmaas.TokenInfo(text="b")])
    )
    assert generation.tokens == (Token("b"),)
    assert generation.input_tokens is None


def test_a_part_of_a_stream_without_a_count_says_that_no_token_was_generated() -> None:
    part = fmaas_messages.ResponseReader(fmaas.ResponseOptions()).part(fmaas.GenerationResponse(text="b"))
    assert part == Generation(text="b", stop_reason="NOT_FINISHED", generated_token_count=0)


def test_nan_is_a_text_in_the_json_form() -> None:
    assert fmaas_messages.as_json(RESPONSE)["inputTokens"][0]["logprob"] == "NaN"


def test_an_unknown_stop_reason_is_a_fault() -> None:
    response = fmaas_messages.decoded(b"\x38\x63", fmaas.GenerationResponse)
    with pytest.raises(FaultError, match="unknown stop reason: 99"):
        fmaas_messages.ResponseReader(fmaas.ResponseOptions()).whole(response)
