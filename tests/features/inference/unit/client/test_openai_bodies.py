"""The bodies of different servers become the same generations."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolbox.features.inference.client import openai_bodies
from toolbox.features.inference.client.answer_format import FaultError, merged
from toolbox.ground.kit.server_answers import Generation, ServerError, Token, ToolCall

# As the documentation and the source of each server show their responses.
VLLM_COMPLETION: dict[str, Any] = {
    "id": "cmpl-1",
    "object": "text_completion",
    "model": "m",
    "choices": [
        {
            "index": 0,
            "text": " world.",
            "logprobs": {
                "text_offset": [0, 6],
                "token_logprobs": [-0.1, -0.5],
                "tokens": [" world", "."],
                "top_logprobs": [{" world": -0.1, " you": -3.0}, {".": -0.5, "!": -1.0}],
            },
            "finish_reason": "stop",
            "stop_reason": ".",
            "token_ids": [995, 13],
            "prompt_token_ids": [1, 15496],
            "prompt_logprobs": [
                None,
                {
                    "15496": {"logprob": -5.0, "rank": 40, "decoded_token": "Hello"},
                    "464": {"logprob": -2.0, "rank": 1, "decoded_token": "The"},
                },
            ],
        }
    ],
    "usage": {"prompt_tokens": 2, "total_tokens": 4, "completion_tokens": 2, "prompt_tokens_details": None},
}
VLLM_CHAT: dict[str, Any] = {
    "object": "chat.completion",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "reasoning_content": None, "content": "Hi", "tool_calls": []},
            "logprobs": {
                "content": [
                    {
                        "token": "Hi",
                        "logprob": -0.25,
                        "bytes": [72, 105],
                        "top_logprobs": [{"token": "Hi", "logprob": -0.25, "bytes": [72, 105]}],
                    }
                ]
            },
            "finish_reason": "stop",
            "stop_reason": None,
        }
    ],
    "usage": {"prompt_tokens": 9, "total_tokens": 11, "completion_tokens": 2},
}
TGI_COMPLETION: dict[str, Any] = {
    "object": "text_completion",
    "model": "m",
    "system_fingerprint": "3.0.0-native",
    "choices": [{"index": 0, "text": " is", "logprobs": None, "finish_reason": "length"}],
    "usage": {"prompt_tokens": 4, "completion_tokens": 1, "total_tokens": 5},
}
LLAMA_CPP_COMPLETION: dict[str, Any] = {
    "choices": [
        {
            "text": "x",
            "index": 0,
            "logprobs": {
                "content": [
                    {
                        "id": 87,
                        "token": "x",
                        "bytes": [120],
                        "logprob": -1.5,
                        "top_logprobs": [{"id": 88, "token": "y", "bytes": [121], "logprob": -1.25}],
                    }
                ]
            },
            "finish_reason": "length",
        }
    ],
    "object": "text_completion",
    "usage": {"completion_tokens": 1, "prompt_tokens": 3, "total_tokens": 4},
    "timings": {"prompt_n": 3, "predicted_ms": 12.5},
}
SGLANG_CHAT: dict[str, Any] = {
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "a", "reasoning_content": None, "tool_calls": None},
            "logprobs": None,
            "finish_reason": "stop",
            "matched_stop": "b",
        }
    ],
    "usage": {"prompt_tokens": 1, "total_tokens": 2, "completion_tokens": 1, "prompt_tokens_details": None},
}
BODIES = [VLLM_COMPLETION, VLLM_CHAT, TGI_COMPLETION, LLAMA_CPP_COMPLETION, SGLANG_CHAT]


def only(body: dict[str, Any]) -> Generation:
    ((index, generation),) = openai_bodies.generations(body)
    assert index == 0
    return generation


def test_a_completion_of_vllm_has_ids_and_input_tokens() -> None:
    generation = only(VLLM_COMPLETION)
    assert generation.text == " world."
    assert (generation.input_token_count, generation.generated_token_count) == (2, 2)
    assert generation.tokens == (
        Token(" world", id=995, logprob=-0.1, top=(Token(" world", logprob=-0.1), Token(" you", logprob=-3.0))),
        Token(".", id=13, logprob=-0.5, top=(Token(".", logprob=-0.5), Token("!", logprob=-1.0))),
    )
    assert generation.input_tokens == (
        Token("", id=1),
        Token("Hello", id=15496, logprob=-5.0, rank=40, top=(Token("Hello", 15496, -5.0), Token("The", 464, -2.0))),
    )


def test_the_first_entry_of_a_position_is_the_token_of_the_input() -> None:
    body = copy.deepcopy(VLLM_COMPLETION)
    del body["choices"][0]["prompt_token_ids"]
    assert [token.text for token in only(body).input_tokens or ()] == ["", "Hello"]


def test_a_chat_has_the_newer_form_of_logprobs() -> None:
    top = Token("Hi", logprob=-0.25, bytes=(72, 105))
    assert only(VLLM_CHAT).tokens == (Token("Hi", logprob=-0.25, top=(top,), bytes=(72, 105)),)


def test_a_completion_of_tgi_has_no_tokens() -> None:
    assert only(TGI_COMPLETION) == Generation(
        text=" is", stop_reason="MAX_TOKENS", input_token_count=4, generated_token_count=1
    )


def test_a_completion_of_llama_cpp_has_the_form_of_a_chat() -> None:
    top = Token("y", 88, -1.25, bytes=(121,))
    assert only(LLAMA_CPP_COMPLETION).tokens == (Token("x", id=87, logprob=-1.5, top=(top,), bytes=(120,)),)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"finish_reason": "length"}, "MAX_TOKENS"),
        ({"finish_reason": "stop"}, "EOS_TOKEN"),
        ({"finish_reason": "stop", "stop_reason": None}, "EOS_TOKEN"),
        ({"finish_reason": "stop", "stop_reason": 128001}, "EOS_TOKEN"),
        ({"finish_reason": "stop", "stop_reason": "\n"}, "STOP_SEQUENCE"),
        ({"finish_reason": "stop", "matched_stop": "\n"}, "STOP_SEQUENCE"),
        ({"finish_reason": "eos_token"}, "EOS_TOKEN"),
        ({"finish_reason": "abort"}, "CANCELLED"),
        ({"finish_reason": "content_filter"}, "CONTENT_FILTER"),
        ({"finish_reason": None}, "NOT_FINISHED"),
        ({"finish_reason": ""}, "NOT_FINISHED"),
        ({}, "NOT_FINISHED"),
    ],
)
def test_reasons_have_the_names_of_fmaas(fields: dict[str, object], reason: str) -> None:
    assert only({"choices": [{"index": 0, "text": "", **fields}]}).stop_reason == reason


def test_a_chat_message_has_its_calls_of_tools() -> None:
    calls = [{"index": 0, "id": f"call_{name}", "function": {"name": name, "arguments": "{}"}} for name in "ab"]
    message = {"role": "assistant", "content": None, "reasoning": "because", "refusal": "no", "tool_calls": calls}
    generation = only({"choices": [{"message": message, "finish_reason": "tool_calls"}]})
    assert (generation.role, generation.reasoning_content, generation.refusal) == ("assistant", "because", "no")
    assert generation.tool_calls == (
        ToolCall(index=0, name="a", arguments="{}", id="call_a"),
        ToolCall(index=1, name="b", arguments="{}", id="call_b"),  # Ollama writes the same index for all calls
    )


def test_the_parts_of_calls_of_tools_are_put_together() -> None:
    deltas = [
        {
            "reasoning_content": "be",
            "tool_calls": [{"index": 0, "id": "x", "function": {"name": "get", "arguments": ""}}],
        },
        {"reasoning_content": "cause", "tool_calls": [{"index": 0, "id": None, "function": {"arguments": '{"a"'}}]},
        {"tool_calls": [{"index": 1, "function": {"name": "stop"}}, {"index": 0, "function": {"arguments": ": 1}"}}]},
    ]
    generation = merged([only({"choices": [{"delta": delta}]}) for delta in deltas])
    assert generation.reasoning_content == "because"
    assert generation.tool_calls == (
        ToolCall(index=0, name="get", arguments='{"a": 1}', id="x"),
        ToolCall(index=1, name="stop"),
    )


def test_choices_are_in_the_order_of_their_numbers() -> None:
    body = {"choices": [{"index": 1, "text": "b"}, {"index": 0, "text": "a"}], "usage": {"completion_tokens": 2}}
    generations = openai_bodies.generations(body)
    assert [(index, generation.text) for index, generation in generations] == [(0, "a"), (1, "b")]
    assert generations[0][1].generated_token_count is None  # the count is that of both


def test_a_chunk_with_only_the_usage_has_the_counts() -> None:
    part = openai_bodies.usage_part({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}})
    assert part == Generation(input_token_count=3, generated_token_count=4)
    assert openai_bodies.usage_part({"choices": [], "usage": None}) is None


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        (None, "choices of the answer is not a list: 'null'"),
        (["x"], r"choices\[0\] of the answer is not an object"),
        ([{"index": 0}], r"choices\[0\].text of the answer is not a text"),
        ([{"index": 0, "text": 7}], r"choices\[0\].text of the answer is not a text: '7'"),
        ([{"index": -1, "text": ""}], "index of the answer is not a whole number that is not negative"),
        ([{"index": 5000, "text": ""}], "index of the answer is 5000, which is not possible"),
        ([{"index": 0, "text": ""}] * 2, r"choices\[1\].index of the answer is 0"),
        ([{"message": []}], "message of the answer is not an object"),
        ([{"text": "", "finish_reason": 1}], "finish_reason of the answer is not a text"),
        ([{"text": "", "logprobs": []}], "logprobs of the answer is not an object"),
        ([{"text": "", "logprobs": {"tokens": ["a"], "token_logprobs": []}}], "1 tokens, but 0 entries"),
        ([{"text": "", "logprobs": {"tokens": ["a"], "token_logprobs": ["x"]}}], "token_logprobs .* not a number"),
        ([{"text": "", "logprobs": {"content": [{}]}}], r"content\[0\].token of the answer is not a text"),
        ([{"text": "", "prompt_logprobs": [{}]}], "position without tokens"),
    ],
)
def test_a_wrong_type_is_a_fault_with_its_place(choices: object, message: str) -> None:
    with pytest.raises(FaultError, match=message):
        openai_bodies.generations({"choices": choices})


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.data())
def test_a_body_with_any_damage_is_a_fault_or_normalised(data: st.DataObject) -> None:
    body = copy.deepcopy(data.draw(st.sampled_from(BODIES)))
    place: Any = body
    while True:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if not isinstance(place[key], (dict, list)) or not place[key] or data.draw(st.booleans()):
            break
        place = place[key]
    place[key] = data.draw(ANY)
    try:
        openai_bodies.generations(body)
        openai_bodies.usage_part(body)
        openai_bodies.error_of(body, 400)
    except FaultError:
        pass


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            {"error": {"message": "no", "type": "invalid_request_error", "param": None, "code": "too_long"}},
            ServerError(code="too_long", message="no", status=400),
        ),
        (
            {"error": {"message": "no", "type": "BadRequestError", "param": None, "code": 400}},  # vLLM
            ServerError(code="BadRequestError", message="no", status=400),
        ),
        (
            {"object": "error", "message": "no", "type": "BadRequestError", "code": 400},  # older releases of vLLM
            ServerError(code="BadRequestError", message="no", status=400),
        ),
        ({"error": "no", "error_type": "validation"}, ServerError(code="validation", message="no", status=400)),  # TGI
        ({"detail": [{"loc": "x"}]}, ServerError(code="HTTP 400", message="\"[{'loc': 'x'}]\"", status=400)),
        (None, ServerError(code="HTTP 400", message="", status=400)),
        ([1], ServerError(code="HTTP 400", message="'[1]'", status=400)),
    ],
)
def test_an_error_of_any_server_has_a_code_and_a_message(body: object, expected: ServerError) -> None:
    assert openai_bodies.error_of(body, 400) == expected


def test_an_error_in_a_stream_has_the_status_of_its_body() -> None:
    assert openai_bodies.error_of({"error": {"message": "no", "code": 503}}, None).status == 503


@pytest.mark.parametrize("empty", [{}, {"choices": []}, {"data": []}, {"choices": None}])
def test_an_error_object_without_an_answer_is_an_error(empty: dict[str, Any]) -> None:
    body = {"object": "error", "message": "no", "code": 400, **empty}
    assert openai_bodies.error_in(body) == ServerError(code="HTTP 400", message="no", status=400)


def test_an_error_page_that_is_not_json_is_the_message() -> None:
    error = openai_bodies.error_of_content(b"<h1>Bad gateway</h1>\xff", 502)
    assert error == ServerError(code="HTTP 502", message="<h1>Bad gateway</h1>\ufffd", status=502)
