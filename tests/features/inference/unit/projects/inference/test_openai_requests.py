"""The refusal of a body of OpenAI's protocol is short, and names the parameter."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from pydantic import ValidationError
from starlette.requests import Request as HttpRequest

from reference_server.openai_requests import ApiError, Body, ChatBody, CompletionBody, parsed

COMPLETION: dict[str, Any] = {"model": "m", "prompt": "a"}
MESSAGE: dict[str, Any] = {"role": "user", "content": "a"}


def refusal(kind: type[Body], document: dict[str, Any]) -> ApiError:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": json.dumps(document).encode()}

    with pytest.raises(ApiError) as refused:
        asyncio.run(parsed(HttpRequest({"type": "http"}, receive), kind))
    return refused.value


@pytest.mark.parametrize(
    ("prompt", "reason"),
    [
        (1, "Input should be a valid string, or Input should be a valid list"),
        ([0.5], "Input should be a valid string, or Input should be a valid integer, or Input should be a valid list"),
        ([-1], "Input should be a valid string, or Input should be greater than or equal to 0, or Input should be a"),
    ],
)
def test_a_parameter_that_may_have_several_types_is_named_without_them(prompt: object, reason: str) -> None:
    error = refusal(CompletionBody, COMPLETION | {"prompt": prompt})
    assert error.parameter == "prompt"
    assert str(error).startswith(f"prompt: {reason}")


@pytest.mark.parametrize(
    ("messages", "parameter"),
    [
        ([MESSAGE, MESSAGE | {"content": [{"type": "image"}]}], "messages.1.content"),
        ([MESSAGE | {"colour": "red"}], "messages.0.colour"),
    ],
)
def test_a_parameter_of_a_message_is_named_with_its_path(messages: list[Any], parameter: str) -> None:
    assert refusal(ChatBody, {"model": "m", "messages": messages}).parameter == parameter


def test_the_name_of_an_unknown_parameter_is_abbreviated() -> None:
    assert refusal(CompletionBody, COMPLETION | {"k" * 10_000: 1}).parameter == "k" * 100


@pytest.mark.parametrize(
    ("kind", "document"),
    [
        (CompletionBody, COMPLETION | {"prompt": [0.5] * 1000}),
        (CompletionBody, COMPLETION | {"prompt": [[0.5] * 1000] * 2}),
        (CompletionBody, COMPLETION | {"stop": [1] * 1000}),
        (ChatBody, {"model": "m", "messages": [{}] * 1000}),
        (ChatBody, {"model": "m", "messages": [MESSAGE | {"content": [{}] * 1000}]}),
    ],
)
def test_very_many_wrong_items_are_not_all_looked_at(kind: type[Body], document: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as refused:
        kind.model_validate(document)
    assert refused.value.error_count() < 10
