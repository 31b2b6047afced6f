"""What a case expects and what a server answered reach the check, and what a target writes is strictly limited."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from toolbox.features.inference.answer_records import ErrorRecord, GenerationRecord
from toolbox.ground.kit.server_answers import Generation, ServerError, Token, ToolCall, as_json
from toolbox.records.runs.evidence_files import first_fault

TOKEN = Token("a", 1, -0.5, 2, (Token("b", 3, -1.5, bytes=(98,)),), (97,))
WHOLE = Generation(
    "a",
    "EOS_TOKEN",
    "x",
    1,
    2,
    3,
    (TOKEN,),
    (TOKEN,),
    role="assistant",
    reasoning_content="b",
    refusal="c",
    tool_calls=(ToolCall("f", "{}", "id", "function", 0),),
    token_ids=(1, 2),
    offsets=((0, 1),),
)


def read(content: object, kind: Any = GenerationRecord) -> Any:
    return TypeAdapter(kind).validate_json(json.dumps(content, allow_nan=False))


def test_no_field_of_an_answer_is_lost() -> None:
    left_out = {name for name, value in dataclasses.asdict(WHOLE).items() if value is None}
    assert left_out == {"error"}  # each new field belongs into this test
    assert read(as_json(WHOLE)) == WHOLE
    error = ServerError("UNAVAILABLE", "later", 503, 0.5)
    assert read(as_json(error), ErrorRecord) == error
    assert read({"text": "a", "error": as_json(error)}) == Generation(error=error), "an error stands for the text"


def test_an_unknown_field_is_ignored_and_null_is_a_missing_field() -> None:
    content = {"x": [1], "text": None, "tokens": [{"text": "a", "top": None, "id": None, "x": 1}], "token_ids": None}
    assert read(content) == Generation(tokens=(Token("a"),))


def test_top_tokens_have_no_top_tokens() -> None:
    top = {"text": "b", "top": [{"text": "c"}]}
    assert read({"tokens": [{"text": "a", "top": [top]}]}) == Generation(tokens=(Token("a", top=(Token("b"),)),))


def test_an_expected_logprob_can_be_none() -> None:
    (token,) = read(as_json(Generation(tokens=(Token("a", logprob=math.nan),)))).tokens
    assert math.isnan(token.logprob)


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ({"text": "a" * 200_001}, "text: must have at most 200000"),
        ({"stop_reason": "A" * 1001}, "stop_reason: must have at most 1000"),
        ({"role": "A" * 1001}, "role: must have at most 1000"),
        ({"error": {"code": "A" * 1001}}, "error.code: must have at most 1000"),
        ({"error": {"message": "A" * 100_001}}, "error.message: must have at most 100000"),
        ({"error": {"retry_after": -1}}, "error.retry_after"),
        ({"seed": 2**64}, "seed: must be less than"),
        ({"seed": -1}, "seed: must be greater than or equal to 0"),
        ({"input_token_count": 2**63}, "input_token_count: must be less than"),
        ({"input_token_count": "1"}, "input_token_count: must be a valid integer"),
        ({"input_token_count": True}, "input_token_count: must be a valid integer"),
        ({"token_ids": [0] * 200_001}, "token_ids: must have at most 200000 items"),
        ({"token_ids": [-1]}, "token_ids.0"),
        ({"offsets": [[1]]}, "offsets.0: must have at least 2 items"),
        ({"offsets": [[1, 2, 3]]}, "offsets.0: must have at most 2 items"),
        ({"tool_calls": [{}] * 1001}, "tool_calls: must have at most 1000 items"),
        ({"tool_calls": [{"arguments": {}}]}, "tool_calls.0.arguments: must be a valid string"),
        ({"tokens": [{"text": ""}] * 200_001}, "tokens: must have at most 200000 items"),
        ({"tokens": [{}]}, "tokens.0.text: Field required"),
        ({"tokens": [{"text": "a", "logprob": "Infinity"}]}, "tokens.0.logprob.float: must be a valid number"),
        ({"tokens": [{"text": "a", "bytes": [256]}]}, "tokens.0.bytes.0: must be less than 256"),
        ({"tokens": [{"text": "a", "bytes": [0] * 1001}]}, "tokens.0.bytes: must have at most 1000 items"),
        ({"tokens": [{"text": "a", "top": [{"text": ""}] * 1001}]}, "tokens.0.top: must have at most 1000"),
        ({"input_tokens": [{"text": "a", "top": [{"text": 5}]}]}, "input_tokens.0.top.0.text: must be a valid string"),
    ],
)
def test_what_a_target_writes_is_strictly_limited(content: object, place: str) -> None:
    with pytest.raises(ValidationError) as raised:
        read(content)
    assert first_fault(raised.value).startswith(place)
