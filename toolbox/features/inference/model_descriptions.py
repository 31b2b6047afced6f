"""Requests for what a server says about its models, and the comparison of the responses field by field.

`model_info` is the call `ModelInfo` of fmaas. `models` is `GET /v1/models` of OpenAI's API.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from toolbox.features.inference.wire_models import Count, Message, ResponsePart
from toolbox.ground.kit.server_answers import quoted
from toolbox.ground.model.model_answers import Mismatch, same_json
from toolbox.ground.model.text import first_of, without_kind

DESCRIPTIONS: Final = ("model_info", "models")
_MODELS: Final = "data"  # the field with the list of models
_CHANGING: Final = ("created",)  # the time at which a server was started
_MAX_NAMED: Final = 5
_MISSING: Final = object()  # stands for a field that the server does not send; null is another value


class ModelInfoRequest(Message):
    """`ModelInfoRequest`."""

    model_id: str = ""


class ModelsRequest(Message):
    """`GET /v1/models`, which has no body."""


class ModelInfo(ResponsePart):
    """`ModelInfoResponse`. Protobuf leaves out fields with their default values."""

    model_kind: Literal["DECODER_ONLY", "ENCODER_DECODER"] = "DECODER_ONLY"
    max_sequence_length: Count = 0
    max_new_tokens: Count = 0

    def fields(self) -> dict[str, Any]:
        """Return the fields that are written."""
        return self.model_dump(exclude_unset=True)


class _ListedModel(BaseModel):
    """A model in the list. Servers add fields of their own."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    id: str


class ModelList(BaseModel):
    """The response to `GET /v1/models`."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    data: list[_ListedModel] = Field(max_length=1000)

    def fields(self) -> dict[str, Any]:
        """Return the fields that are written."""
        return self.model_dump(exclude_unset=True)


def mismatches(protocol: str, expected: Mapping[str, Any], response: Any) -> Iterator[Mismatch]:
    """Yield the fields that differ. Fields and models that the expected response does not have are not compared.

    Args:
        protocol: one of DESCRIPTIONS.
        expected: the `fields()` of the expected response.
        response: the response of the server as JSON.
    """
    try:
        actual = described(protocol, response)
    except ValueError as error:
        yield Mismatch(f"the response is not valid: {error}")
        return
    for name, value in expected.items():
        if protocol == "models" and name == _MODELS:
            yield from _of_models(value, actual[_MODELS])
        else:
            yield from _of_values(value, actual.get(name, _MISSING), name)


def described(protocol: str, response: Any) -> dict[str, Any]:
    """Return all fields of a response of a server. Raise ValueError if the response is not valid."""
    try:
        if protocol == "model_info":
            return ModelInfo.model_validate(response).model_dump()
        return ModelList.model_validate(response).model_dump()
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        raise ValueError(f"{'.'.join(map(str, fault['loc']))} {without_kind(fault['msg'])}".strip()) from None


def recorded(protocol: str, response: Any) -> dict[str, Any]:
    """Return what a case file should expect of a response: the fields that are the same after each start of the server.

    Raises:
        ValueError: the response is not valid.
    """
    fields = described(protocol, response)
    if protocol == "model_info":
        return fields
    kept = [
        {name: value for name, value in model.items() if name not in _CHANGING and isinstance(value, str | int | float)}
        for model in fields[_MODELS]
    ]
    return {_MODELS: kept}


def _of_models(expected: list[dict[str, Any]], actual: list[dict[str, Any]]) -> Iterator[Mismatch]:
    by_name = {model["id"]: model for model in actual}
    for model in expected:
        name = model["id"]
        if name not in by_name:
            others = ", ".join(first_of([quoted(other) for other in by_name], _MAX_NAMED)) or "no model"
            yield Mismatch(f"the server does not list the model {quoted(name)}, but {others}")
            continue
        for field, value in model.items():
            yield from _of_values(value, by_name[name].get(field, _MISSING), f"model {quoted(name)}: {field}")


def _of_values(expected: Any, actual: Any, place: str) -> Iterator[Mismatch]:
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        for name, value in expected.items():
            yield from _of_values(value, actual.get(name, _MISSING), f"{place}.{name}")
    elif not same_json(expected, actual):
        yield Mismatch(f"{place} is {_shown(actual)}, expected {_shown(expected)}")


def _shown(value: Any) -> str:
    if value is _MISSING:
        return "missing"
    return quoted(value) if isinstance(value, str) else quoted(json.dumps(value, default=str))[1:-1]
