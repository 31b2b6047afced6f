"""A client of TGIS's gRPC service talks to the reference server."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import grpc
import openai
import pytest
from google.protobuf import json_format

from tests.features.inference.functional.reference_server.clients import Stub
from tests.features.inference.servers.reference_server import ReferenceServer
from toolbox.features.inference.client.fmaas import generation_pb2 as fmaas

PROMPT = "to be or not"
EVERYTHING = {
    "generatedTokens": True,
    "inputTokens": True,
    "tokenLogprobs": True,
    "tokenRanks": True,
    "topNTokens": 2,
}
STOP_SEQUENCES = "can specify at most 6 non-empty stop sequences, each not more than 240 UTF8 bytes"


def request(*texts: str, **parameters: Any) -> fmaas.BatchedGenerationRequest:
    """Return a request as a case file has it."""
    document = {"requests": [{"text": text} for text in texts], "params": parameters}
    return json_format.ParseDict(document, fmaas.BatchedGenerationRequest())


def streamed(stub: Stub, text: str, **parameters: Any) -> list[fmaas.GenerationResponse]:
    document = {"request": {"text": text}, "params": parameters}
    return list(stub.GenerateStream(json_format.ParseDict(document, fmaas.SingleGenerationRequest())))


def generate(stub: Stub, *texts: str, **parameters: Any) -> Sequence[fmaas.GenerationResponse]:
    return list(stub.Generate(request(*texts, **parameters)).responses)


def test_a_text_gets_twenty_tokens_by_default(stub: Stub) -> None:
    (found,) = generate(stub, "to be")
    assert (found.input_token_count, found.generated_token_count, len(found.text)) == (5, 20, 20)
    assert found.stop_reason == fmaas.MAX_TOKENS
    assert (found.seed, list(found.tokens), list(found.input_tokens)) == (0, [], [])


def test_an_empty_batch_has_an_empty_response(stub: Stub) -> None:
    assert stub.Generate(fmaas.BatchedGenerationRequest()) == fmaas.BatchedGenerationResponse()


def test_the_responses_of_a_batch_are_in_order_and_as_alone(stub: Stub) -> None:
    texts = ["to be", "or", "not to be", "x", "y", "z"]
    found = generate(stub, *texts, response=EVERYTHING)
    assert found == [generate(stub, text, response=EVERYTHING)[0] for text in texts]


def test_both_protocols_generate_the_same(stub: Stub, client: openai.OpenAI) -> None:
    sampling = {"seed": 5, "temperature": 0.5, "topK": 7}
    (found,) = generate(stub, PROMPT, method="SAMPLE", sampling=sampling, stopping={"maxNewTokens": 12})
    other = client.completions.create(
        model="tiny", prompt=PROMPT, max_tokens=12, seed=5, temperature=0.5, extra_body={"top_k": 7}
    )
    assert found.text == other.choices[0].text
    assert found.seed == 5


def test_each_text_of_a_batch_without_a_seed_gets_its_own(stub: Stub) -> None:
    found = generate(stub, *["to be"] * 5, method="SAMPLE", stopping={"maxNewTokens": 20})
    assert len({response.seed for response in found}) == len({response.text for response in found}) == 5
    assert all(response.seed < 2**32 for response in found)
    (again,) = generate(stub, "to be", method="SAMPLE", sampling={"seed": found[0].seed}, stopping={"maxNewTokens": 20})
    assert again == found[0]


def test_a_seed_holds_for_each_text_of_a_batch(stub: Stub) -> None:
    first, second = generate(stub, "to be", "to be", method="SAMPLE", sampling={"seed": 99})
    assert first == second


def test_greedy_ignores_the_parameters_of_sampling(stub: Stub) -> None:
    sampling = {"temperature": 0.01, "seed": 3, "topP": 7}
    assert generate(stub, PROMPT, method="GREEDY", sampling=sampling) == generate(stub, PROMPT)


def test_details_are_given_as_requested(stub: Stub) -> None:
    (found,) = generate(stub, "to be", stopping={"maxNewTokens": 4}, response=EVERYTHING)
    assert "".join(token.text for token in found.tokens) == found.text
    assert "".join(token.text for token in found.input_tokens) == "to be"
    first, *others = found.input_tokens
    assert (math.isnan(first.logprob), first.rank, list(first.top_tokens)) == (True, 0, [])
    for token in [*others, *found.tokens]:
        assert token.logprob < 0 < token.rank
        assert len(token.top_tokens) == 2
        assert (token.rank == 1) == (token.top_tokens[0].text == token.text)
        assert (token.top_tokens[0].logprob == token.logprob) == (token.rank == 1)
    assert {token.rank for token in found.tokens} == {1}  # greedy


def test_details_that_were_not_requested_are_left_out(stub: Stub) -> None:
    (found,) = generate(stub, "to", stopping={"maxNewTokens": 2}, response={"inputTokens": True, "topNTokens": 1})
    assert list(found.tokens) == []
    assert [(token.text, token.logprob, token.rank) for token in found.input_tokens] == [("t", 0, 0), ("o", 0, 0)]
    assert [top.logprob for top in found.input_tokens[1].top_tokens] == [0]


def test_the_input_can_be_repeated_and_truncated(stub: Stub) -> None:
    options = {"stopping": {"maxNewTokens": 3}, "truncateInputTokens": 4}
    (plain,) = generate(stub, "or not", **options)
    (whole,) = generate(stub, "to be or not", response={"inputText": True}, **options)
    assert whole.input_token_count == 4
    assert whole.text == "to be or not" + plain.text


@pytest.mark.parametrize("included", [None, True, False])
def test_a_stop_sequence_ends_the_text(stub: Stub, included: bool | None) -> None:
    (free,) = generate(stub, PROMPT)
    stop = free.text[6:10]
    stopping = {"maxNewTokens": 20, "stopSequences": ["unused", stop]}
    if included is not None:
        stopping["includeStopSequence"] = included
    (found,) = generate(stub, PROMPT, stopping=stopping, response={"generatedTokens": True})
    end = free.text.index(stop)
    assert found.text == free.text[: end if included is False else end + 4]
    assert (found.stop_reason, found.stop_sequence) == (fmaas.STOP_SEQUENCE, stop)
    assert found.generated_token_count == len(found.tokens) == end + 4
    parts = streamed(stub, PROMPT, stopping=stopping)
    assert "".join(part.text for part in parts) == found.text


def test_a_text_ends_at_the_length_of_the_model(stub: Stub) -> None:
    (found,) = generate(stub, PROMPT, stopping={"maxNewTokens": 30})
    assert (found.generated_token_count, found.stop_reason) == (20, fmaas.TOKEN_LIMIT)


def test_a_time_limit_ends_a_text(stub: Stub) -> None:
    # The other texts keep all places busy for longer than a millisecond.
    many = stub.Generate.future(request(*["a"] * 200, stopping={"maxNewTokens": 30}))
    (found,) = generate(stub, "a", stopping={"maxNewTokens": 30, "timeLimitMillis": 1})
    assert found.stop_reason == fmaas.TIME_LIMIT
    assert found.generated_token_count < 30
    assert len(many.result().responses) == 200


def test_a_time_limit_does_not_set_the_count_of_a_stream_back(slow_server: ReferenceServer) -> None:
    with grpc.insecure_channel(slow_server.grpc_address) as channel:
        parts = streamed(Stub(channel), "a", stopping={"maxNewTokens": 50_000, "timeLimitMillis": 100})
    counts = [part.generated_token_count for part in parts]
    assert parts[-1].stop_reason == fmaas.TIME_LIMIT
    assert counts == sorted(counts)


def test_a_stream_has_the_messages_of_tgis(stub: Stub) -> None:
    options: dict[str, Any] = {
        "method": "SAMPLE",
        "sampling": {"seed": 4},
        "stopping": {"maxNewTokens": 6},
        "response": EVERYTHING | {"inputText": True},
    }
    (whole,) = generate(stub, PROMPT, **options)
    first, second, *others = streamed(stub, PROMPT, **options)
    assert first == fmaas.GenerationResponse(input_token_count=12, text=PROMPT, seed=4)
    assert list(map(str, second.input_tokens)) == list(map(str, whole.input_tokens))  # NaN differs from NaN
    assert (second.text, second.generated_token_count) == ("", 0)
    assert [part.generated_token_count for part in others] == [1, 2, 3, 4, 5, 6]
    assert PROMPT + "".join(part.text for part in others) == whole.text
    assert [token for part in others for token in part.tokens] == list(whole.tokens)
    assert [part.stop_reason for part in others] == [fmaas.NOT_FINISHED] * 5 + [fmaas.MAX_TOKENS]
    assert [part.seed for part in others] == [0] * 5 + [4]
    assert not any(part.input_token_count or part.input_tokens for part in others)


def test_a_text_is_split_into_characters(stub: Stub) -> None:
    message = {"requests": [{"text": "né!"}, {"text": ""}], "returnTokens": True, "returnOffsets": True}
    found = stub.Tokenize(json_format.ParseDict(message, fmaas.BatchedTokenizeRequest()))
    assert json_format.MessageToDict(found, preserving_proto_field_name=True) == {
        "responses": [
            {
                "token_count": 3,
                "tokens": ["n", "é", "!"],
                "offsets": [{"end": 1}, {"start": 1, "end": 2}, {"start": 2, "end": 3}],
            },
            {},
        ]
    }
    counted = stub.Tokenize(json_format.ParseDict({"requests": [{"text": "not"}]}, fmaas.BatchedTokenizeRequest()))
    assert (counted.responses[0].token_count, list(counted.responses[0].tokens)) == (3, [])
    message = {"requests": [{"text": "not"}], "returnTokens": True, "truncateInputTokens": 2}
    cut = stub.Tokenize(json_format.ParseDict(message, fmaas.BatchedTokenizeRequest()))
    assert (cut.responses[0].token_count, list(cut.responses[0].tokens)) == (2, ["o", "t"])


def test_the_model_is_described(stub: Stub) -> None:
    found = stub.ModelInfo(fmaas.ModelInfoRequest(model_id="tiny"))
    assert (found.max_sequence_length, found.max_new_tokens) == (32, 30)
    assert found.model_kind == fmaas.ModelInfoResponse.DECODER_ONLY


@pytest.mark.parametrize(
    ("text", "parameters", "reason"),
    [
        ("", {}, "text must contain at least one character"),
        ("a" * 32, {}, "input tokens (32) plus prefix length (0) must be < 32"),
        ("A", {}, "text contains the character 'A' at position 0"),
        ("a", {"stopping": {"maxNewTokens": 31}}, "max_new_tokens must be <= 30"),
        ("a", {"stopping": {"maxNewTokens": 2**32 - 1}}, "max_new_tokens must be <= 30"),
        ("a", {"stopping": {"minNewTokens": 20, "maxNewTokens": 10}}, "min_new_tokens must be <= max_new_tokens"),
        (
            "a" * 20,
            {"stopping": {"minNewTokens": 13}},
            "input tokens (20) plus prefix length (0) plus min_new_tokens (13) must be <= 32",
        ),
        ("a", {"stopping": {"stopSequences": ["b", ""]}}, STOP_SEQUENCES),
        ("a", {"stopping": {"stopSequences": ["b"] * 7}}, STOP_SEQUENCES),
        ("a", {"method": "SAMPLE", "sampling": {"temperature": 0.02}}, "temperature must be >= 0.05"),
        ("a", {"method": "SAMPLE", "sampling": {"temperature": -1.0}}, "temperature must be >= 0.05"),
        ("a", {"method": "SAMPLE", "sampling": {"temperature": "NaN"}}, "temperature must be >= 0.05"),
        ("a", {"method": "SAMPLE", "sampling": {"temperature": "Infinity"}}, "temperature must be a number above 0"),
        ("a", {"method": "SAMPLE", "sampling": {"topP": 1.5}}, "top_p must be > 0.0 and <= 1.0"),
        ("a", {"method": "SAMPLE", "sampling": {"typicalP": "NaN"}}, "typical_p must be > 0.0 and <= 1.0"),
        ("a", {"method": 7}, "method 7 is unknown"),
        ("a", {"decoding": {"repetitionPenalty": -1}}, "repetition_penalty must be > 0.0"),
        ("a", {"decoding": {"lengthPenalty": {"decayFactor": 0.5}}}, "length_penalty must be >= 1.0 and <= 10.0"),
        ("a", {"decoding": {"lengthPenalty": {}}}, "length_penalty must be >= 1.0 and <= 10.0"),
        ("a", {"response": {"generatedTokens": True, "topNTokens": 6}}, "top_n_tokens must be <= 5"),
        ("a", {"response": {"tokenLogprobs": True}}, "must request input and/or generated tokens"),
    ],
)
def test_an_impossible_request_is_refused(stub: Stub, text: str, parameters: dict[str, Any], reason: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: generate(stub, "b", text, **parameters),
        lambda: streamed(stub, text, **parameters),
    ]
    for call in calls:
        with pytest.raises(grpc.RpcError, match=re.escape(reason)) as refused:
            call()
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_length_penalty_changes_nothing(stub: Stub) -> None:
    decoding = {"lengthPenalty": {"startIndex": 1, "decayFactor": 2}}
    assert generate(stub, "a", decoding=decoding) == generate(stub, "a")


def test_unknown_models_and_prefixes_are_refused(stub: Stub) -> None:
    message = fmaas.SingleGenerationRequest(model_id="huge", request=fmaas.GenerationRequest(text="a"))
    for call in (
        lambda: list(stub.GenerateStream(message)),
        lambda: stub.Generate(fmaas.BatchedGenerationRequest(model_id="huge")),
        lambda: stub.Tokenize(fmaas.BatchedTokenizeRequest(model_id="huge")),
        lambda: stub.ModelInfo(fmaas.ModelInfoRequest(model_id="huge")),
    ):
        with pytest.raises(grpc.RpcError) as refused:
            call()
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
    with pytest.raises(grpc.RpcError, match="prefix_id 'x' is unknown") as refused:
        stub.Generate(fmaas.BatchedGenerationRequest(prefix_id="x"))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_stream_without_a_request_is_refused(stub: Stub) -> None:
    with pytest.raises(grpc.RpcError, match="missing request"):
        list(stub.GenerateStream(fmaas.SingleGenerationRequest()))
