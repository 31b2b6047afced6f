"""The official client of OpenAI's protocol talks to the reference server."""

from __future__ import annotations

import http.client
import json
import math
import time
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

from tests.features.inference.servers.reference_server import ReferenceServer

PROMPT = "to be or not"


def test_the_model_is_listed(client: openai.OpenAI) -> None:
    (model,) = client.models.list().data
    assert (model.id, model.object) == ("tiny", "model")
    assert client.models.retrieve("tiny") == model


def test_a_completion_continues_the_prompt(client: openai.OpenAI) -> None:
    found = client.completions.create(model="tiny", prompt=PROMPT, max_tokens=8, temperature=0)
    (choice,) = found.choices
    assert len(choice.text) == 8
    assert (choice.finish_reason, choice.logprobs) == ("length", None)
    assert found.usage is not None
    assert (found.usage.prompt_tokens, found.usage.completion_tokens, found.usage.total_tokens) == (12, 8, 20)
    assert (found.model, found.object) == ("tiny", "text_completion")
    # 16 tokens are OpenAI's default.
    again = client.completions.create(model="tiny", prompt=PROMPT, temperature=0)
    assert again.choices[0].text.startswith(choice.text)
    assert len(again.choices[0].text) == 16


def test_several_prompts_and_choices_are_in_order(client: openai.OpenAI) -> None:
    options = {"model": "tiny", "max_tokens": 6, "seed": 5}
    found = client.completions.create(prompt=["abc", "to be"], n=2, **options)  # type: ignore[call-overload]
    assert [choice.index for choice in found.choices] == [0, 1, 2, 3]
    texts = [choice.text for choice in found.choices]
    assert len(set(texts)) == 4
    for place, prompt in enumerate(["abc", "to be"]):
        alone = client.completions.create(prompt=prompt, n=2, **options)  # type: ignore[call-overload]
        assert [choice.text for choice in alone.choices] == texts[2 * place : 2 * place + 2]
    assert (found.usage.prompt_tokens, found.usage.completion_tokens) == (8, 24)


def test_tokens_may_be_the_prompt(client: openai.OpenAI) -> None:
    texts = [
        client.completions.create(model="tiny", prompt=prompt, max_tokens=5, temperature=0).choices[0].text
        for prompt in ("\n!", [0, 2], [[0, 2]])
    ]
    assert texts[0] == texts[1] == texts[2]


def test_a_seed_repeats_a_text(client: openai.OpenAI) -> None:
    texts = [
        client.completions.create(model="tiny", prompt=PROMPT, seed=seed, max_tokens=18).choices[0].text
        for seed in (1, 1, -1, None)
    ]
    assert texts[0] == texts[1]
    assert len(set(texts)) == 3


@pytest.mark.parametrize("stop", ["stop", ["unused", "stop"]])
def test_a_stop_sequence_is_not_part_of_the_text(client: openai.OpenAI, stop: str | list[str]) -> None:
    text = client.completions.create(model="tiny", prompt=PROMPT, max_tokens=18, temperature=0).choices[0].text
    wanted = text[6:9]
    stops = wanted if stop == "stop" else [*stop[:-1], wanted]
    options = {"model": "tiny", "prompt": PROMPT, "max_tokens": 18, "temperature": 0, "stop": stops, "logprobs": 1}
    found = client.completions.create(**options)  # type: ignore[call-overload]
    (choice,) = found.choices
    expected = text[: text.index(wanted)]
    assert (choice.text, choice.finish_reason, choice.stop_reason) == (expected, "stop", wanted)
    assert "".join(choice.logprobs.tokens) == expected
    assert found.usage.completion_tokens == len(expected) + 3
    streamed = list(client.completions.create(stream=True, **options))  # type: ignore[call-overload]
    assert "".join(chunk.choices[0].text for chunk in streamed) == expected
    assert [chunk.choices[0].finish_reason for chunk in streamed][-2:] == [None, "stop"]


def test_logprobs_describe_each_token(client: openai.OpenAI) -> None:
    found = client.completions.create(model="tiny", prompt=PROMPT, max_tokens=5, temperature=0, logprobs=3)
    logprobs = found.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens is not None
    assert "".join(logprobs.tokens) == found.choices[0].text
    assert logprobs.text_offset == [0, 1, 2, 3, 4]
    best = logprobs.top_logprobs or []
    for token, logprob, top in zip(logprobs.tokens, logprobs.token_logprobs or [], best, strict=True):
        assert len(top) == 3
        assert top[token] == logprob == max(top.values()) < 0
        assert sum(map(math.exp, top.values())) < 1


def test_a_stream_adds_up_to_the_whole(client: openai.OpenAI) -> None:
    options = {"model": "tiny", "prompt": PROMPT, "max_tokens": 10, "seed": 3, "n": 2, "logprobs": 0}
    whole = client.completions.create(**options)  # type: ignore[call-overload]
    stream = list(client.completions.create(stream=True, stream_options={"include_usage": True}, **options))  # type: ignore[call-overload]
    *chunks, last = stream
    assert last.choices == []
    assert last.usage == whole.usage
    assert {chunk.id for chunk in stream} == {last.id}
    for expected in whole.choices:
        parts = [chunk.choices[0] for chunk in chunks if chunk.choices[0].index == expected.index]
        assert "".join(part.text for part in parts) == expected.text
        assert [part.finish_reason for part in parts] == [None] * 9 + ["length"]
        assert [lp for part in parts for lp in part.logprobs.token_logprobs] == expected.logprobs.token_logprobs
        assert [place for part in parts for place in part.logprobs.text_offset] == list(range(10))


def test_a_chat_continues_its_messages(client: openai.OpenAI) -> None:
    found = client.chat.completions.create(
        model="tiny",
        messages=[
            {"role": "system", "content": "to be"},
            {"role": "user", "content": [{"type": "text", "text": "or "}, {"type": "text", "text": "not"}]},
        ],
        max_completion_tokens=6,
        temperature=0,
        logprobs=True,
        top_logprobs=2,
    )
    plain = client.completions.create(model="tiny", prompt="to be\nor not", max_tokens=6, temperature=0)
    (choice,) = found.choices
    assert (choice.message.role, choice.message.content) == ("assistant", plain.choices[0].text)
    assert choice.logprobs is not None
    entries = choice.logprobs.content or []
    assert "".join(entry.token for entry in entries) == choice.message.content
    assert all(bytes(entry.bytes or []).decode() == entry.token == entry.top_logprobs[0].token for entry in entries)
    assert {len(entry.top_logprobs) for entry in entries} == {2}


def test_a_chat_without_a_limit_fills_the_context(client: openai.OpenAI) -> None:
    found = client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": PROMPT}], seed=0)
    assert found.usage is not None
    assert found.usage.total_tokens == 32
    assert found.choices[0].finish_reason == "length"


def test_a_streamed_chat_begins_with_its_role(client: openai.OpenAI) -> None:
    options = {"model": "tiny", "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 5, "seed": 9}
    whole = client.chat.completions.create(**options)  # type: ignore[call-overload]
    first, *chunks = client.chat.completions.create(stream=True, **options)  # type: ignore[call-overload]
    assert (first.choices[0].delta.role, first.choices[0].delta.content) == ("assistant", "")
    assert "".join(chunk.choices[0].delta.content for chunk in chunks) == whole.choices[0].message.content
    assert chunks[-1].choices[0].finish_reason == "length"


def test_concurrent_clients_get_what_they_would_get_alone(client: openai.OpenAI) -> None:
    def create(seed: int) -> tuple[str, list[float]]:
        found = client.completions.create(
            model="tiny", prompt=PROMPT[: seed % 9 + 1], seed=seed, max_tokens=4 + seed, logprobs=0
        )
        logprobs = found.choices[0].logprobs
        assert logprobs is not None
        return found.choices[0].text, [logprob for logprob in logprobs.token_logprobs or [] if logprob is not None]

    alone = [create(seed) for seed in range(16)]
    with ThreadPoolExecutor(16) as threads:
        assert list(threads.map(create, range(16))) == alone


def test_parameters_of_vllm_are_known(client: openai.OpenAI) -> None:
    extra = {"top_k": 1, "min_tokens": 3, "repetition_penalty": 1.2, "truncate_prompt_tokens": 5}
    found = client.completions.create(model="tiny", prompt=PROMPT, max_tokens=4, extra_body=extra)
    assert found.usage is not None
    assert found.usage.prompt_tokens == 5


@pytest.mark.parametrize(
    ("changes", "parameter", "reason"),
    [
        ({"prompt": ""}, "prompt", "must contain at least one character"),
        ({"prompt": []}, "prompt", "must not be empty"),
        ({"prompt": [[]]}, "prompt", "must contain at least one character"),
        ({"prompt": [99]}, "prompt", "has a token id that is not below 33"),
        ({"prompt": "A"}, "prompt", "contains the character 'A' at position 0, which is not in the vocabulary"),
        ({"prompt": "a" * 32}, "prompt", "must be shorter than 32 tokens, not 32"),
        ({"max_tokens": 31}, "max_tokens", "must be <= 30"),
        ({"max_tokens": 0}, "max_tokens", "must be >= 1"),
        ({"max_tokens": -5}, "max_tokens", "must be >= 1"),
        ({"temperature": -1}, "temperature", "greater than or equal to 0"),
        ({"temperature": 2.1}, "temperature", "less than or equal to 2"),
        ({"top_p": 0}, "top_p", "must be > 0.0 and <= 1.0"),
        ({"n": 0}, "n", "greater than or equal to 1"),
        ({"n": 129}, "n", "less than or equal to 128"),
        ({"stop": [""]}, "stop", "at most 6 non-empty texts"),
        ({"seed": 2**64}, "seed", "less than"),
        ({"logprobs": 6}, "logprobs", "less than or equal to 5"),
        ({"logprobs": True}, "logprobs", "valid integer"),
        ({"echo": True}, "echo", "is not supported by this server"),
        ({"presence_penalty": 0.5}, "presence_penalty", "is not supported by this server"),
        ({"extra_body": {"colour": "red"}}, "colour", "not permitted"),
        ({"extra_body": {"min_tokens": 17}}, "min_tokens", "must be <= max_tokens"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "needs stream"),
    ],
)
def test_an_impossible_request_is_refused(
    client: openai.OpenAI, changes: dict[str, object], parameter: str, reason: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(**({"model": "tiny", "prompt": PROMPT} | changes))  # type: ignore[call-overload]
    assert reason in refused.value.message
    assert refused.value.param == parameter
    assert refused.value.type == "invalid_request_error"


@pytest.mark.parametrize(
    ("changes", "parameter"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "tool", "content": "a"}]}, "messages.0.role"),
        ({"messages": [{"role": "user"}]}, "messages.0.content"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
    ],
)
def test_an_impossible_chat_is_refused(client: openai.OpenAI, changes: dict[str, object], parameter: str) -> None:
    options = {"model": "tiny", "messages": [{"role": "user", "content": "a"}]} | changes
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(**options)  # type: ignore[call-overload]
    assert refused.value.param == parameter


def test_another_model_is_not_found(client: openai.OpenAI, server: ReferenceServer) -> None:
    for attempt in (
        lambda: client.models.retrieve("huge"),
        lambda: client.completions.create(model="huge", prompt="a"),
        lambda: client.chat.completions.create(model="huge", messages=[{"role": "user", "content": "a"}]),
    ):
        with pytest.raises(openai.NotFoundError) as refused:
            attempt()
        assert refused.value.code == "model_not_found"
    assert server.process.poll() is None


def test_the_parts_of_a_stream_are_sent_at_once(server: ReferenceServer) -> None:
    """With Nagle's algorithm, a part waits until the client has acknowledged the one before, which takes 40 ms."""
    body = {"model": server.model, "prompt": "a", "max_tokens": 5, "stream": True}
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)

    def seconds() -> float:
        begin = time.monotonic()
        connection.request("POST", "/v1/completions", json.dumps(body))
        connection.getresponse().read()
        return time.monotonic() - begin

    for _ in range(10):  # Linux delays acknowledgements only after the first requests of a connection
        seconds()
    assert any(seconds() < 0.035 for _ in range(200))  # one of many, because the machine may be busy
    connection.close()
