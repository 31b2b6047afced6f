"""What a case expects reaches the check, and nothing of it is lost on the way."""

from __future__ import annotations

import dataclasses
import json

from toolbox.features.inference import answer_records
from toolbox.features.inference.answer_records import GenerationRecord
from toolbox.ground.model.generations import Generation, Token, ToolCall

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
    tool_calls=(ToolCall("f", "{}", "id", "function"),),
    token_ids=(1, 2),
    offsets=((0, 1),),
)


def test_no_field_of_an_expected_answer_is_lost() -> None:
    left_out = {name for name, value in dataclasses.asdict(WHOLE).items() if value is None}
    assert left_out == {"error"}  # each new field belongs into this test
    record = GenerationRecord.model_validate_json(json.dumps(answer_records.as_json(WHOLE)))
    assert record.generation() == WHOLE
