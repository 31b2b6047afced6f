"""A change of an expected response is refused before the run, or fails the case: no case passes that compares nothing.

The answers are those that the client makes of the bodies of a server, whole and as a stream.
"""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import pytest
import yaml

from toolbox.features.inference import answer_judging, case_files, suites
from toolbox.features.inference.answer_records import AnswerRecord
from toolbox.features.inference.client import fmaas_messages, openai_bodies
from toolbox.features.inference.client.answer_format import Answer, merged
from toolbox.features.inference.client.fmaas import generation_pb2 as fmaas
from toolbox.features.inference.suites import Expectations
from toolbox.ground.kit.server_answers import ServerError
from toolbox.ground.model.cases import CaseOutcome, CaseResult
from toolbox.ground.model.errors import ConfigurationError

MUTATIONS: Final = 600
SEED: Final = 35
# Another name of the last top token might be a tie, which the comparator `logprobs` accepts.
_TIES: Final = re.compile(r"value \S*(top_logprobs|topTokens)\.\d\.(token|text):|key \S*top_logprobs\.\d\. ")

CHAT: Final = {
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "It is hot",
                "reasoning_content": "ask the sun",
                "refusal": "not the moon",
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "get_weather", "arguments": '{"city": "Paris", "days": [1, 2]}'},
                    },
                    {"function": {"name": "stop", "arguments": '{"now": true}'}},
                ],
            },
            "finish_reason": "stop",
            "stop_reason": "###",
            "logprobs": {
                "content": [
                    {
                        "token": "It is",
                        "id": 7,
                        "logprob": -0.5,
                        "bytes": [73, 116],
                        "top_logprobs": [{"token": "It was", "id": 8, "logprob": -1.5, "bytes": [9]}],
                    },
                    {"token": " hot", "id": 9, "logprob": -0.25, "bytes": [32]},
                ]
            },
        }
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2},
}
COMPLETION: Final = {
    "choices": [
        {
            "text": " a time",
            "finish_reason": "length",
            "token_ids": [4, 5],
            "logprobs": {
                "tokens": [" a", " time"],
                "token_logprobs": [-0.5, -0.75],
                "top_logprobs": [{" a": -0.5, " the": -1.0}, {" time": -0.75, " day": -2.0}],
            },
        }
    ],
    "usage": {"prompt_tokens": 2, "completion_tokens": 2},
}
CHOICES: Final = {
    "choices": [
        {"index": 1, "message": {"content": "b", "tool_calls": []}, "finish_reason": "stop"},
        {"index": 0, "message": {"content": "a"}, "finish_reason": "length"},
    ]
}
GENERATED: Final = {
    "responses": [
        {
            "text": "Once",
            "stopReason": "STOP_SEQUENCE",
            "stopSequence": "ce",
            "inputTokenCount": 3,
            "generatedTokenCount": 1,
            "seed": 5,
            "tokens": [{"text": "Once", "logprob": -0.5, "rank": 1, "topTokens": [{"text": "Then", "logprob": -1.5}]}],
            "inputTokens": [{"text": "a", "rank": 2}],
        }
    ]
}
TOKENIZED: Final = {
    "responses": [
        {"tokenCount": 2, "tokens": ["The", " sun"], "offsets": [{"start": 0, "end": 3}, {"start": 3, "end": 7}]}
    ]
}
LIMITS: Final = {"modelKind": "ENCODER_DECODER", "maxSequenceLength": 200, "maxNewTokens": 169}
MODELS: Final = {"object": "list", "data": [{"id": "m", "owned_by": "us", "root": {"ready": True, "n": 1}}]}
ERROR: Final = {"code": "INVALID_ARGUMENT", "message": "too long", "status": 400}

_OPTIONS: Final = {
    "generatedTokens": True,
    "inputTokens": True,
    "tokenLogprobs": True,
    "tokenRanks": True,
    "topNTokens": 2,
}
_MESSAGES: Final = [{"role": "user", "content": "Hi"}]
CASES: Final[Mapping[str, Mapping[str, Any]]] = {
    "chat": {"request": {"messages": _MESSAGES, "logprobs": True}, "response": CHAT},
    "similar": {
        "request": {"messages": _MESSAGES},
        "compare": [{"comparator": "exact"}, {"comparator": "logprobs"}, {"comparator": "similarity"}],
        "response": CHAT,
    },
    "completion": {"request": {"prompt": "Once upon", "logprobs": 2}, "response": COMPLETION},
    "choices": {"request": {"messages": _MESSAGES, "n": 2}, "response": CHOICES},
    "generated": {"request": {"params": {"response": _OPTIONS}, "requests": [{"text": "a"}]}, "response": GENERATED},
    "tokenized": {"request_type": "tokenize", "request": {"requests": [{"text": "The sun"}]}, "response": TOKENIZED},
    "limits": {"request_type": "model_info", "request": {}, "response": LIMITS},
    "models": {"request_type": "models", "request": {}, "response": MODELS},
    "error": {"request": {"prompt": "Once upon"}, "error": ERROR},
}


def streamed(choice: Mapping[str, Any], index: int) -> Iterator[dict[str, Any]]:
    """Yield the choices of the chunks in which a server streams a choice."""
    ends = {name: choice[name] for name in ("finish_reason", "stop_reason") if name in choice}
    logprobs = choice.get("logprobs") or {}
    if "message" not in choice:
        for place, letter in enumerate(choice["text"]):
            first = {"logprobs": logprobs, "token_ids": choice["token_ids"]} if place == 0 else {}
            yield {"index": index, "text": letter, **first}
        yield {"index": index, "text": "", **ends}
        return
    message = choice["message"]
    yield {"index": index, "delta": {"role": message.get("role"), "content": ""}}
    for name in ("reasoning_content", "content", "refusal"):
        for letter in message.get(name) or "":
            yield {"index": index, "delta": {name: letter}}
    for number, call in enumerate(message.get("tool_calls") or ()):
        function = call["function"]
        about = {**call, "index": number, "function": {"name": function.get("name"), "arguments": ""}}
        yield {"index": index, "delta": {"content": None, "tool_calls": [about]}}
        for letter in function.get("arguments") or "":
            part = {"index": number, "id": None, "function": {"arguments": letter}}
            yield {"index": index, "delta": {"tool_calls": [part]}}
    for token in logprobs.get("content") or ():
        yield {"index": index, "delta": {}, "logprobs": {"content": [token]}}
    yield {"index": index, "delta": {}, **ends}


def answered(name: str, body: Mapping[str, Any], *, stream: bool) -> AnswerRecord:
    """Return the record of the worker for what a server sends."""
    answer = Answer(case=name, stream=stream)
    if name == "error":
        answer.error = ServerError(**body)
    elif name in ("tokenized", "limits", "models"):
        answer.response = body
    elif name == "generated":
        batch = fmaas_messages.parsed(CASES[name]["request"], fmaas.BatchedGenerationRequest)
        reader = fmaas_messages.ResponseReader(batch.params.response)
        messages = fmaas_messages.parsed(body, fmaas.BatchedGenerationResponse).responses
        if stream:
            answer.add(0, reader.part(messages[0]), {})
            answer.end_stream()
        else:
            answer.generations = [reader.whole(message) for message in messages]
    elif stream:
        for index, choice in enumerate(sorted(body["choices"], key=lambda choice: choice.get("index", 0))):
            for part in streamed(choice, index):
                for number, generation in openai_bodies.generations({"choices": [part]}):
                    answer.add(number, generation, {})
        if usage := openai_bodies.usage_part({"usage": body.get("usage")}):
            answer.add(0, usage, {})
        answer.end_stream()
    else:
        answer.generations = [merged([generation]) for _, generation in openai_bodies.generations(body)]
    return AnswerRecord.model_validate_json(answer.line())


def wrong(body: Any) -> Any:
    """Return a body in which each text and each number is another one, and which is still valid."""
    if isinstance(body, Mapping):
        kept = ("index", "id", "finish_reason", "stopReason", "modelKind", "arguments")
        others = {"finish_reason": "content_filter", "stopReason": "MAX_TOKENS", "modelKind": "DECODER_ONLY"}
        changed = {name: value if name in kept else wrong(value) for name, value in body.items()}
        changed |= {name: value for name, value in others.items() if name in body}
        return (
            changed
            | ({"id": 70} if isinstance(body.get("id"), int) else {"id": "z"} if "id" in body else {})
            | ({"arguments": '{"city": "Rome"'} if "arguments" in body else {})
        )
    if isinstance(body, list):
        return [wrong(item) for item in body]
    if isinstance(body, bool):
        return not body
    return f"z{body}" if isinstance(body, str) else body + 1


def judged(text: str, name: str, body: Mapping[str, Any]) -> list[CaseResult]:
    """Return the results of a case, whole and as a stream. Raise ConfigurationError if the case is refused."""
    (case,) = case_files.parse(text, source="f.yaml", suite="f")
    case = replace(case, stream=case_files.can_stream(case))
    _, described = suites.describe([case], protocols=["fmaas", "openai"])
    ((_, expectation),) = Expectations.model_validate_json(json.dumps(described)).expectations.items()
    streams = [False, True] if case_files.can_stream(case) and name != "error" else [False]
    return [
        answer_judging.judge(expectation, expectation.comparators(), answered(name, body, stream=stream), stream=stream)
        for stream in streams
    ]


def written(name: str, changes: Mapping[str, Any]) -> str:
    return yaml.safe_dump([{"name": name, **changes}], allow_unicode=True)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value inside a value."""
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


def mutated(case: Mapping[str, Any], chance: random.Random) -> tuple[dict[str, Any], str]:
    """Return a case with one change of what it expects, and what the change is."""
    changed: dict[str, Any] = copy.deepcopy(dict(case))
    expects = "error" if "error" in case else "response"
    path = chance.choice([(expects,), *((expects, *place) for place in places(case[expects]))])
    parent: Any = changed
    for key in path[:-1]:
        parent = parent[key]
    key, value = path[-1], parent[path[-1]]
    kinds = ["null", "drop", "type", *(["key"] if isinstance(key, str) else [])]
    kind = chance.choice([*kinds, *(["value"] * 3 if not isinstance(value, dict | list) else [])])
    if kind == "key":
        at = chance.randrange(len(key))
        parent[chance.choice([key[:at] + key[at + 1 :], f"{key[:at]}x{key[at:]}", key.upper()])] = parent.pop(key)
    elif kind == "null":
        parent[key] = None
    elif kind == "drop":
        del parent[key]
    elif kind == "type":
        others = [7, "text", True, ["x"], {"x": 1}, -1.5, "", [], {}]
        parent[key] = chance.choice([other for other in others if type(other) is not type(value)])
    else:
        parent[key] = not value if isinstance(value, bool) else f"{value}x" if isinstance(value, str) else value + 1
    return changed, f"{kind} {'.'.join(map(str, path))}: {json.dumps(changed.get(expects))}"


def mutations() -> Iterator[tuple[str, dict[str, Any], str]]:
    chance = random.Random(SEED)
    for _ in range(MUTATIONS):
        name = chance.choice(sorted(CASES))
        case, what = mutated(CASES[name], chance)
        if not _TIES.match(what):
            yield name, case, what


def body_of(name: str) -> Any:
    return CASES[name].get("response", CASES[name].get("error"))


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_right_answer_passes_and_the_wrong_one_fails(name: str) -> None:
    text = written(name, CASES[name])
    assert [(each.outcome, each.message) for each in judged(text, name, body_of(name))] in (
        [(CaseOutcome.PASSED, "")],
        [(CaseOutcome.PASSED, "")] * 2,
    )
    assert {each.outcome for each in judged(text, name, wrong(body_of(name)))} == {CaseOutcome.FAILED}


def test_no_mutated_case_passes_that_compares_nothing() -> None:
    refused, failed, passed = 0, 0, 0
    for name, case, what in mutations():
        text = written(name, case)
        try:
            results = judged(text, name, body_of(name))
        except ConfigurationError:
            refused += 1
            continue
        if all(result.outcome is CaseOutcome.FAILED for result in results):
            failed += 1
            continue
        passed += 1
        assert what.startswith("drop "), f"{name}: {what} passes"  # what is not written is not compared
        if "response" in case or "error" in case:
            others = judged(text, name, wrong(body_of(name)))
            assert all(other.outcome is CaseOutcome.FAILED for other in others), f"{name}: {what} judges nothing"
        else:
            assert all("nothing was compared" in result.message for result in results), what
    assert min(refused, failed, passed) >= MUTATIONS // 20
