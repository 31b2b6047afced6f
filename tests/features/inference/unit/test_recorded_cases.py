"""The answers of a server become the expected responses of a case file, and pass it."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from toolbox.features.inference import case_files
from toolbox.features.inference.answer_records import AnswerRecord
from toolbox.features.inference.recorded_cases import CaseFile, Recorded
from toolbox.ground.model.errors import ConfigurationFaults

GREEDY = """
    - name: greedy
      stream: false
      request: {requests: [{text: a}]}
"""
SAMPLED = "- {name: sampled, request: {params: {method: SAMPLE}, requests: [{text: a}]}}"
COMPLETION = "- {name: c, request: {prompt: a, temperature: 0}}"
BODY = {
    "id": "cmpl-1",
    "created": 7,
    "choices": [
        {"index": 0, "text": "b", "finish_reason": "length", "logprobs": {"tokens": ["b"], "token_logprobs": [-0.5]}}
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}


def case_file(directory: Path, text: str, **options: Any) -> CaseFile:
    file = directory / "f.yaml"
    file.write_text(dedent(text))
    return CaseFile.read(file, **options)


def whole(text: str = "b", **fields: Any) -> dict[str, Any]:
    """Return the response of fmaas to one request."""
    return {"text": text, "stopReason": "MAX_TOKENS", "generatedTokenCount": 1, "inputTokenCount": 1, **fields}


def answer(case: str, *responses: dict[str, Any], **fields: Any) -> AnswerRecord:
    """Return an answer of fmaas as the worker writes it."""
    names = {"text": "text", "stopReason": "stop_reason", "seed": "seed", "inputTokenCount": "input_token_count"}
    generations = [
        {"text": "", "generated_token_count": each.get("generatedTokenCount", 0)}
        | {names[name]: int(value) if name == "seed" else value for name, value in each.items() if name in names}
        for each in responses
    ]
    record = {"response": {"responses": list(responses)}, "generations": generations, **fields}
    return AnswerRecord.model_validate_json(json.dumps({"case": f"f/{case}", **record}))


def error(case: str, **fields: Any) -> AnswerRecord:
    return answer(case, response=None, error={"code": "INVALID_ARGUMENT", "message": "too long", **fields})


def record(directory: Path, text: str, *answers: AnswerRecord, **options: Any) -> Recorded:
    return case_file(directory, text, **options).recorded(answers, "new.yaml")


def fault(directory: Path, text: str, *answers: AnswerRecord) -> str:
    (found,) = record(directory, text, *answers).faults
    return found


def test_an_answer_becomes_the_response_of_its_case(tmp_path: Path) -> None:
    new = record(tmp_path, GREEDY, answer("greedy", whole("b\n", seed="99")))
    assert (new.faults, yaml.safe_load(new.text)) == ([], new.entries)
    (entry,) = new.entries
    assert list(entry) == ["name", "stream", "request", "response"]
    assert list(entry["response"]["responses"][0].items()) == [
        ("generatedTokenCount", 1),
        ("inputTokenCount", 1),
        ("seed", "99"),
        ("stopReason", "MAX_TOKENS"),
        ("text", "b\n"),
    ]


def test_an_old_response_or_error_is_replaced_at_its_place(tmp_path: Path) -> None:
    old = "- {name: greedy, error: {code: X}, singleShardOnly: true, request: {requests: [{text: a}]}}"
    (entry,) = record(tmp_path, old, answer("greedy", whole())).entries
    assert list(entry) == ["name", "response", "singleShardOnly", "request", "stream"]
    old = "- {name: greedy, response: {responses: [{text: x}]}, request: {requests: [{text: a}]}}"
    (entry,) = record(tmp_path, old, error("greedy")).entries
    assert entry["error"] == {"code": "INVALID_ARGUMENT", "message": "too long"}
    assert "response" not in entry


@pytest.mark.parametrize("text", ["{singleShardOnly: true, name: greedy, request: {requests: [{text: a}]}}"])
def test_a_mapping_of_cases_stays_a_mapping(tmp_path: Path, text: str) -> None:
    new = record(tmp_path, f"first: {text}", answer("greedy", whole()))
    assert list(yaml.safe_load(new.text)) == ["first"]


def test_two_cases_of_a_name_keep_their_name_and_their_answers(tmp_path: Path) -> None:
    new = record(tmp_path, GREEDY + GREEDY, answer("greedy #2", whole("2")), answer("greedy", whole("1")))
    first, second = new.entries
    assert (first["name"], second["name"]) == ("greedy", "greedy")
    assert [each["response"]["responses"][0]["text"] for each in new.entries] == ["1", "2"]


def test_a_case_whose_name_looks_repeated_gets_its_own_answer(tmp_path: Path) -> None:
    text = GREEDY.replace("name: greedy", "name: 'greedy #2'") + GREEDY + GREEDY
    names = [each["name"] for each in case_file(tmp_path, text).requests(["fmaas"])["cases"]]
    answers = [answer(name.removeprefix("f/"), whole(name)) for name in names]
    new = record(tmp_path, text, *answers)
    assert len(set(names)) == 3
    assert [each["response"]["responses"][0]["text"] for each in new.entries] == names


def test_fields_have_the_style_of_the_file_or_the_chosen_one(tmp_path: Path) -> None:
    snake = GREEDY.replace("{requests", "{params: {truncate_input_tokens: 5}, requests")
    models = "    - {name: m, request_type: models, request: {}, response: {data: [{id: a, owned_by: b}]}}"
    for text, options, name in (
        (GREEDY, {}, "stopReason"),
        (GREEDY + models, {}, "stopReason"),
        (snake, {}, "stop_reason"),
        (snake, {"keys": "camelCase"}, "stopReason"),
    ):
        listed = answer("m", response={"data": [{"id": "a"}]})
        new = record(tmp_path, text, answer("greedy", whole()), listed, **options)
        assert new.faults == []
        assert name in new.entries[0]["response"]["responses"][0]


def test_zeros_and_empty_texts_are_expected(tmp_path: Path) -> None:
    (entry,) = record(tmp_path, GREEDY, answer("greedy", {"stopReason": "EOS_TOKEN", "inputTokenCount": 1})).entries
    assert entry["response"]["responses"][0]["text"] == ""
    assert entry["response"]["responses"][0]["generatedTokenCount"] == 0
    (entry,) = record(
        tmp_path,
        "- {name: t, request: {returnTokens: true, requests: [{text: a}, {text: ''}]}}",
        answer("t", {"tokenCount": 1, "tokens": ["a"]}, {}, generations=[]),
    ).entries
    assert entry["response"] == {"responses": [{"tokenCount": 1, "tokens": ["a"]}, {"tokenCount": 0}]}


def test_of_a_random_answer_only_the_input_is_recorded(tmp_path: Path) -> None:
    text = SAMPLED.replace("name:", "skip_check: true, name:")
    (entry,) = record(tmp_path, text, answer("sampled", whole())).entries
    assert entry["response"] == {"responses": [{"inputTokenCount": 1}]}
    assert entry["skip_check"] is True


@pytest.mark.parametrize("text", [SAMPLED, COMPLETION.replace(", temperature: 0", "")])
def test_a_case_that_does_not_say_that_it_is_random_is_not_sent(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigurationFaults, match=r"f.yaml:1: the case .* is random: give the case a `seed`"):
        case_file(tmp_path, text).requests(["fmaas", "openai"])
    wrong = text[:-1] + ", error: {code: INVALID_ARGUMENT}}"
    assert case_file(tmp_path, wrong).requests(["fmaas", "openai"])["cases"]
    assert "is random" in fault(tmp_path, wrong, answer(text.split()[2][:-1], whole()))


def test_a_case_of_another_protocol_is_not_sent(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationFaults, match="'c' cannot be sent: the server does not speak openai, only fmaas"):
        case_file(tmp_path, f"{GREEDY}    {COMPLETION}").requests(["fmaas"])


@pytest.mark.parametrize(("field", "stream"), [("stream: true", True), ("stream: false", False), ("", True)])
def test_a_case_is_sent_as_a_run_sends_it(tmp_path: Path, field: str, stream: bool) -> None:
    sent = case_file(tmp_path, GREEDY.replace("stream: false", field)).requests(["fmaas"])
    assert [(each["name"], each["stream"]) for each in sent["cases"]] == [("f/greedy", stream)]


def stream_answer(text: str = "b", **fields: Any) -> AnswerRecord:
    """Return the answer to `greedy` as a stream."""
    chunk = {"text": text, "stop_reason": "MAX_TOKENS", "generated_token_count": 1}
    return answer("greedy", whole(text), stream=True, chunks=[chunk], **{"response": None, **fields})


STREAMED = GREEDY.replace("stream: false", "single_shard_only: false")


def test_a_stream_that_passes_the_new_case_stays(tmp_path: Path) -> None:
    new = record(tmp_path, STREAMED, answer("greedy", whole()), stream_answer())
    assert ([list(entry) for entry in new.entries], new.faults, new.remarks) == (
        [["name", "single_shard_only", "request", "response"]],
        [],
        [],
    )


@pytest.mark.parametrize(
    ("streams", "reason"),
    [
        ([stream_answer("c")], "the text differs at character 1: 'c', expected 'b'"),
        ([stream_answer(fault="half a stream")], "no complete answer: half a stream"),
        ([], "there is no answer"),
    ],
)
def test_a_case_whose_stream_does_not_pass_is_recorded_without_it(
    tmp_path: Path, streams: list[AnswerRecord], reason: str
) -> None:
    new = record(tmp_path, STREAMED, answer("greedy", whole()), *streams)
    assert [entry["stream"] for entry in new.entries] == [False]
    assert new.remarks == [f"greedy: got `stream: false`, because the stream does not pass: {reason}"]
    wanted = record(tmp_path, STREAMED.replace("single_shard_only: false", "stream: true"), answer("greedy", whole()))
    assert wanted.faults == ["greedy: as a stream: there is no answer"]  # the file asks for the stream


def test_of_an_answer_of_openai_what_can_be_compared_is_recorded(tmp_path: Path) -> None:
    generation = {
        "text": "b",
        "stop_reason": "MAX_TOKENS",
        "input_token_count": 1,
        "generated_token_count": 1,
        "tokens": [{"text": "b", "logprob": -0.5}],
    }
    new = record(tmp_path, COMPLETION, answer("c", response=BODY, generations=[generation]))
    assert new.faults == []
    assert new.entries[0]["response"] == {
        "choices": BODY["choices"],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1},
    }


def test_choices_in_another_order_are_recorded(tmp_path: Path) -> None:
    fields = {"finish_reason": "stop"}
    choices = [{"index": n, "text": text, "stop_reason": text, **fields} for n, text in ((1, "b"), (0, "a"))]
    generations = [{"text": text, "stop_reason": "STOP_SEQUENCE", "stop_sequence": text} for text in ("a", "b")]
    text = COMPLETION.replace("temperature", "n: 2, temperature")
    new = record(tmp_path, text, answer("c", response={"choices": choices}, generations=generations))
    assert new.faults == []


@pytest.mark.parametrize(
    ("choice", "generation"),
    [
        ({"finish_reason": "tool_calls", "message": {"content": None}}, {"text": "", "stop_reason": "TOOL_CALLS"}),
        (
            {"finish_reason": "stop", "matched_stop": "x", "text": "a"},
            {"text": "a", "stop_reason": "STOP_SEQUENCE", "stop_sequence": "x"},
        ),
        ({"finish_reason": "stop", "matched_stop": 2, "text": "a"}, {"text": "a", "stop_reason": "EOS_TOKEN"}),
        ({"finish_reason": "eos_token", "text": "a"}, {"text": "a", "stop_reason": "EOS_TOKEN"}),
    ],
)
def test_stop_reasons_of_openai_are_those_of_the_worker(
    tmp_path: Path, choice: dict[str, Any], generation: dict[str, Any]
) -> None:
    new = record(tmp_path, COMPLETION, answer("c", response={"choices": [choice]}, generations=[generation]))
    assert new.faults == []


def test_the_parts_of_a_chat_message_are_recorded_without_random_ids(tmp_path: Path) -> None:
    call = {"id": "call_x", "index": 0, "type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "refusal": None, "reasoning": "hm", "tool_calls": [call]}
    body = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls", "logprobs": None}]}
    calls = [{"name": "f", "arguments": "{}", "id": "call_x", "type": "function"}]
    generation = {"text": "", "stop_reason": "TOOL_CALLS", "role": "assistant", "reasoning_content": "hm"}
    record_ = answer("c", response=body, generations=[generation | {"tool_calls": calls}])
    new = record(tmp_path, COMPLETION.replace("prompt: a", "messages: [{}]"), record_)
    assert new.faults == []
    assert new.entries[0]["response"]["choices"][0]["message"] == {
        "role": "assistant",
        "content": "",
        "reasoning_content": "hm",
        "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{}"}}],
    }


def test_descriptions_of_models_are_recorded(tmp_path: Path) -> None:
    text = """
        - {name: limits, request_type: model_info, request: {model_id: m}}
        - {name: models, request_type: models, request: {}}
        """
    listed = {"data": [{"id": "m", "created": 7}]}
    new = record(tmp_path, text, answer("limits", response={"maxNewTokens": 9}), answer("models", response=listed))
    limits = {"model_kind": "DECODER_ONLY", "max_sequence_length": 0, "max_new_tokens": 9}
    assert new.faults == []
    assert [entry["response"] for entry in new.entries] == [limits, {"data": [{"id": "m"}]}]


@pytest.mark.parametrize(
    ("record_", "message"),
    [
        (answer("other"), "greedy: there is no answer"),
        (answer("greedy", fault="half a stream"), "greedy: half a stream"),
        (answer("greedy", whole(stopReason="CANCELLED")), "an answer has the stop reason CANCELLED"),
        (answer("greedy", whole(), whole()), "the response has 2 answers to 1 request"),
        (answer("greedy", response=[]), "greedy: the response is not valid"),
        (answer("greedy", response={"x": 1}), "greedy: the response is not valid"),
        (error("greedy", code="UNAUTHENTICATED"), "the error is not about the request: UNAUTHENTICATED: too long"),
        (error("greedy", status=503), "the error is not about the request"),
    ],
)
def test_an_answer_that_no_case_should_expect_is_a_fault(tmp_path: Path, record_: AnswerRecord, message: str) -> None:
    assert message in fault(tmp_path, GREEDY, record_)


def test_a_tool_call_with_broken_arguments_is_a_fault_that_names_its_place(tmp_path: Path) -> None:
    call = {"function": {"name": "f", "arguments": '{"city": "Paris"'}}
    response = {"choices": [{"message": {"content": None, "tool_calls": [call]}, "finish_reason": "tool_calls"}]}
    text = "- {name: chat, request: {messages: [{role: user, content: a}], temperature: 0}}"
    message = fault(tmp_path, text, answer("chat", response=response))
    assert "chat: the response is not valid: choices.0.message.tool_calls.0.function.arguments: Expecting" in message


def test_an_error_of_the_server_is_recorded_if_the_case_expects_it(tmp_path: Path) -> None:
    text = GREEDY + "      error: {code: RESOURCE_EXHAUSTED}\n"
    new = record(tmp_path, text, error("greedy", code="RESOURCE_EXHAUSTED", status=429, retry_after=0.5))
    assert new.faults == []
    assert new.entries[0]["error"] == {"code": "RESOURCE_EXHAUSTED", "message": "too long", "status": 429}
    assert "is not about the request" in fault(tmp_path, text, error("greedy", code="INTERNAL"))


def test_an_answer_that_the_comparators_of_its_case_refuse_is_a_fault(tmp_path: Path) -> None:
    text = GREEDY + "      compare: [{comparator: regex, pattern: '[0-9]'}]\n"
    assert "greedy: the text " in fault(tmp_path, text, answer("greedy", whole()))
    assert "has no effect" in fault(tmp_path, text, error("greedy"))


HOSTILE = [
    *(
        "yes",
        "0x10",
        "1e3",
        "~",
        "12:30:00",
        "<<",
        "=",
        "- a: {b",
        "@x {y}",
        "'''Shape'''\n\n    def",
        " \n a",
        "\r\n\t#",
    ),
    *("\x00\x1b]0;x\x07", "\x85\u2028\ufeff", "é😀\U0010ffff", "a" * 150_000),
]


@pytest.mark.parametrize("text", HOSTILE)
def test_any_text_of_a_server_is_the_same_after_reading(tmp_path: Path, text: str) -> None:
    new = record(tmp_path, GREEDY, answer("greedy", whole(text)))
    (case,) = case_files.parse(new.text, source="new.yaml", suite="f")
    assert new.faults == []
    assert [each.text for each in case.expected or ()] == [text]


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_every_character_is_the_same_after_reading(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    new = record(tmp_path_factory.getbasetemp(), GREEDY, answer("greedy", whole(text)))
    assert new.faults == []


def test_a_text_that_yaml_cannot_express_is_a_fault(tmp_path: Path) -> None:
    response = {"responses": [{**whole(), "stopSequence": "\ud800"}]}
    given = answer("greedy", whole()).model_copy(update={"response": response})
    assert "a case file cannot express the answer" in fault(tmp_path, GREEDY, given)
