"""Makes the `response` or the `error` of a case from the answer of a trusted server, in the format of case files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Literal

from pydantic import ValidationError
from pydantic.alias_generators import to_camel, to_snake

from toolbox.features.inference import model_descriptions
from toolbox.features.inference.answer_records import AnswerRecord
from toolbox.features.inference.case_files import Case
from toolbox.features.inference.client.answer_format import NOT_FINISHED
from toolbox.features.inference.model_descriptions import DESCRIPTIONS
from toolbox.features.inference.wire_models import OpenAiResponse
from toolbox.ground.kit.server_answers import ServerError, as_json
from toolbox.records.runs.evidence_files import first_fault

Keys = Literal["camelCase", "snake_case"]
UNDETERMINED: Final = "the output is random: give the case a `seed`, `temperature: 0`, `skip_check: true` or `compare`"
_OF_INPUT: Final = ("inputTokenCount", "inputTokens")  # what is expected of a random answer
# Protobuf leaves out zeros and empty texts, but a field that is missing in a case is not compared.
_TEXT_DEFAULTS: Final[Mapping[str, Any]] = {"generatedTokenCount": 0, "inputTokenCount": 0, "text": ""}
_TOKEN_DEFAULTS: Final[Mapping[str, Any]] = {"tokenCount": 0}
_UNREPEATABLE: Final = frozenset({None, NOT_FINISHED, "CANCELLED", "ERROR", "TIME_LIMIT"})
# Errors that say something about the server or the key, and nothing about the request.
_SERVER_CODES: Final = frozenset(
    {"INTERNAL", "UNKNOWN", "DATA_LOSS", "RESOURCE_EXHAUSTED", "UNAUTHENTICATED", "PERMISSION_DENIED"}
)
_SERVER_STATUSES: Final = frozenset({401, 403, 407, 408, 429, *range(500, 600)})


class NotRecorded(Exception):
    """The server gave no answer that a case file could expect. The message says why."""


def recorded(case: Case, answer: AnswerRecord | None, keys: Keys) -> dict[str, Any]:
    """Return the field `response` or `error` of a case.

    Args:
        answer: the answer of the server; None if there is none.
        keys: how the fields of a message of fmaas are written.

    Raises:
        NotRecorded: the answer is not complete, is random, or is not about the request.
    """
    if answer is None:
        raise NotRecorded("there is no answer")
    if answer.fault is not None:
        raise NotRecorded(answer.fault)
    if answer.error is not None:
        if _is_of_server(answer.error) and not _is_expected(case, answer.error):
            raise NotRecorded(f"the error is not about the request: {answer.error}")
        return {"error": as_json(replace(answer.error, retry_after=None))}
    if is_undetermined(case):
        raise NotRecorded(UNDETERMINED)
    for generation in answer.generations:
        if generation.stop_reason in _UNREPEATABLE:
            raise NotRecorded(f"an answer has the stop reason {generation.stop_reason}, so its end is not repeatable")
    try:
        return {"response": _response(case, answer.response, keys)}
    except ValidationError as error:
        raise NotRecorded(f"the response is not valid: {first_fault(error)}") from None
    except (ValueError, TypeError, LookupError, AttributeError) as error:  # the server wrote the response
        raise NotRecorded(f"the response is not valid: {type(error).__name__}") from None


def is_undetermined(case: Case) -> bool:
    """Tell whether the request leaves the output to chance, although the case says nothing about it."""
    if case.is_random or case.compare is not None or not case.requests:
        return False
    request = case.request
    if case.protocol == "fmaas":
        parameters = request.get("params") or {}
        return parameters.get("method") == "SAMPLE" and (parameters.get("sampling") or {}).get("seed") is None
    if case.protocol in ("completions", "chat"):
        return request.get("temperature") != 0 and request.get("seed") is None
    return False


def expected_error(case: Case) -> ServerError | None:
    """Return the error that a case expects; None if it expects none."""
    return next((each.error for each in case.expected or () if each.error is not None), None)


def _is_of_server(error: ServerError) -> bool:
    return error.code in _SERVER_CODES or error.status in _SERVER_STATUSES


def _is_expected(case: Case, error: ServerError) -> bool:
    expected = expected_error(case)
    if expected is None or (expected.code is None and expected.status is None):
        return False
    return expected.code in (None, error.code) and expected.status in (None, error.status)


def _response(case: Case, response: Any, keys: Keys) -> dict[str, Any]:
    if case.protocol in DESCRIPTIONS:
        fields = model_descriptions.recorded(case.protocol, response)
        return _message(fields, keys) if case.protocol == "model_info" else fields
    if case.protocol in ("completions", "chat"):
        return _of_openai(case, OpenAiResponse.from_server(response))
    return _message(_of_fmaas(case, response), keys)


def _of_fmaas(case: Case, response: Mapping[str, Any]) -> dict[str, Any]:
    if response == {}:
        return {}
    defaults = _TOKEN_DEFAULTS if case.protocol == "tokenize" else _TEXT_DEFAULTS
    answers = [{**defaults, **each} for each in response["responses"]]
    if case.is_random:
        answers = [{name: each[name] for name in _OF_INPUT if name in each} for each in answers]
    return {"responses": answers}


def _of_openai(case: Case, response: OpenAiResponse) -> dict[str, Any]:
    if not case.is_random:
        return response.model_dump(exclude_unset=True, exclude_none=True)
    count = response.usage.prompt_tokens if response.usage is not None else None
    usage = {"usage": {"prompt_tokens": count}} if count is not None else {}
    return {"choices": [{} for _ in response.choices], **usage}


def _message(fields: Mapping[str, Any], keys: Keys) -> dict[str, Any]:
    """Return a message of protobuf with its fields in alphabetical order and in a style."""
    rename = to_camel if keys == "camelCase" else to_snake
    return {rename(name): _value(value, keys) for name, value in sorted(fields.items())}


def _value(value: Any, keys: Keys) -> Any:
    if isinstance(value, list):
        return [_value(item, keys) for item in value]
    return _message(value, keys) if isinstance(value, Mapping) else value
