"""Normalises the bodies of OpenAI's protocol, as vLLM, TGI, SGLang and llama.cpp write them, without a connection.

Logprobs have two forms. The older one, of completions, has lists that are parallel: `tokens`, `token_logprobs` and
`top_logprobs`. The newer one, of chats (in llama.cpp also of completions), has a list of objects: `content`. Ids of
tokens come from `token_ids` of vLLM and from `id` of llama.cpp.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from toolbox.ground.kit.server_answers import Generation, ServerError, Token, ToolCall, cut

from .answer_format import NOT_FINISHED, FaultError, server_error
from .json_values import count, decoded, excerpt, finite_number, mapping, sequence, text

_MAX_CHOICES: Final = 1024
_MAX_ID_DIGITS: Final = 18
_REASON_CHARACTERS: Final = 100
_SHOWN_CHARACTERS: Final = 1000  # of an error that is not JSON
_ERROR_STATUSES: Final = range(400, 600)
_CONTENT: Final = frozenset({"content"})
_FIELDS_OF_REASONING: Final = ("reasoning_content", "reasoning")  # newer releases of vLLM have the second one
FIELDS_OF_STOPS: Final = ("stop_reason", "matched_stop")  # vLLM, SGLang
# Names of reasons, besides "stop", which needs a look at the stop string.
_STOP_REASONS: Final[Mapping[str, str]] = {
    "length": "MAX_TOKENS",
    "eos_token": "EOS_TOKEN",  # older releases of TGI
    "stop_sequence": "STOP_SEQUENCE",
    "abort": "CANCELLED",  # vLLM and SGLang
}


def generations(body: Mapping[str, Any]) -> Sequence[tuple[int, Generation]]:
    """Return the generations in a body or in a chunk of a stream, each with its number.

    Raises:
        FaultError: a field has the wrong type, or two choices have the same number.
    """
    choices = sequence(body.get("choices"), "choices")
    usage = body.get("usage")
    found: dict[int, Generation] = {}
    for position, value in enumerate(choices):
        choice = mapping(value, f"choices[{position}]")
        index = count(choice.get("index", position), f"choices[{position}].index")
        if index is None or index >= _MAX_CHOICES or index in found:
            raise FaultError(f"choices[{position}].index of the answer is {index}, which is not possible")
        found[index] = _generation(choice, f"choices[{position}]")
    if len(found) == 1 and usage is not None:
        ((index, generation),) = found.items()
        found[index] = replace(generation, **_counts(usage))
    return sorted(found.items())


def usage_part(body: Mapping[str, Any]) -> Generation | None:
    """Return the counts in a chunk without choices, which ends a stream, or None if there are none."""
    return Generation(**_counts(body["usage"])) if not body.get("choices") and body.get("usage") else None


def _counts(value: object) -> dict[str, Any]:
    usage = mapping(value, "usage")
    names = {"input_token_count": "prompt_tokens", "generated_token_count": "completion_tokens"}
    counts = {ours: count(usage.get(theirs), f"usage.{theirs}") for ours, theirs in names.items()}
    return {name: number for name, number in counts.items() if number is not None}


def _generation(choice: Mapping[str, Any], place: str) -> Generation:
    return Generation(
        text=_text(choice, place),
        stop_reason=stop_reason(choice, place),
        tokens=_tokens(choice, place),
        input_tokens=_input_tokens(choice, place),
        stop_sequence=stop_sequence(choice),
        token_ids=_numbers(choice["token_ids"], f"{place}.token_ids") if "token_ids" in choice else None,
        **_message(choice, place),
    )


def _message(choice: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Return the parts of a chat message, or of a chunk of one, besides its content."""
    name = "message" if "message" in choice else "delta"
    if name not in choice:
        return {}
    place = f"{place}.{name}"
    message = mapping(choice[name], place)
    if message.keys() <= _CONTENT:  # most chunks
        return {}
    reasoning = [message.get(name) for name in _FIELDS_OF_REASONING]
    return {
        "role": _optional_text(message.get("role"), f"{place}.role"),
        "reasoning_content": next((each for each in reasoning if isinstance(each, str)), None),
        "refusal": _optional_text(message.get("refusal"), f"{place}.refusal"),
        "tool_calls": _tool_calls(message.get("tool_calls"), f"{place}.tool_calls", is_part=name == "delta"),
    }


def _tool_calls(value: object, place: str, *, is_part: bool) -> tuple[ToolCall, ...] | None:
    if value is None:
        return None
    calls = enumerate(sequence(value, place))
    return tuple(_tool_call(call, number, f"{place}[{number}]", is_part=is_part) for number, call in calls)


def _tool_call(value: object, position: int, place: str, *, is_part: bool) -> ToolCall:
    call = mapping(value, place)
    function = mapping(call.get("function") or {}, f"{place}.function")
    index = count(call.get("index"), f"{place}.index") if is_part else None
    return ToolCall(
        index=position if index is None else index,
        name=_optional_text(function.get("name"), f"{place}.function.name"),
        arguments=_optional_text(function.get("arguments"), f"{place}.function.arguments"),
        id=_optional_text(call.get("id"), f"{place}.id"),
        type=_optional_text(call.get("type"), f"{place}.type"),
    )


def _optional_text(value: object, place: str) -> str | None:
    return None if value is None else text(value, place)


def _numbers(value: object, place: str) -> tuple[int, ...] | None:
    """Return a list of numbers; None if there is none, or if it has gaps."""
    numbers = [count(number, place) for number in sequence(value, place)] if value is not None else [None]
    known = tuple(number for number in numbers if number is not None)
    return known if len(known) == len(numbers) else None


def _text(choice: Mapping[str, Any], place: str) -> str:
    for name in ("message", "delta"):
        if name in choice:
            content = mapping(choice[name], f"{place}.{name}").get("content")
            return "" if content is None else text(content, f"{place}.{name}.content")  # null: a call of a tool
    return text(choice.get("text"), f"{place}.text")


def stop_reason(choice: Mapping[str, Any], place: str) -> str:
    """Return why a choice ended, by the names of fmaas. Raise FaultError if a field has the wrong type."""
    value = choice.get("finish_reason")
    reason = "" if value is None else text(value, f"{place}.finish_reason")
    if not reason.strip():
        return NOT_FINISHED
    if reason == "stop":
        return "EOS_TOKEN" if stop_sequence(choice) is None else "STOP_SEQUENCE"
    return _STOP_REASONS.get(reason, reason.upper()[:_REASON_CHARACTERS])


def stop_sequence(choice: Mapping[str, Any]) -> str | None:
    """Return the stop string that ended a text. In its place, servers also write the id of a token."""
    for name in FIELDS_OF_STOPS:
        if isinstance(stop := choice.get(name), str):
            return stop
    return None


def _tokens(choice: Mapping[str, Any], place: str) -> tuple[Token, ...] | None:
    if choice.get("logprobs") is None:
        return None
    place = f"{place}.logprobs"
    logprobs = mapping(choice["logprobs"], place)
    tokens: tuple[Token, ...] | None = None
    if logprobs.get("content") is not None:
        entries = sequence(logprobs["content"], f"{place}.content")
        tokens = tuple(_entry(entry, f"{place}.content[{number}]") for number, entry in enumerate(entries))
    elif logprobs.get("tokens") is not None:
        tokens = _parallel(logprobs, place)
    ids = choice.get("token_ids")
    if tokens is not None and isinstance(ids, list) and len(ids) == len(tokens):
        tokens = tuple(replace(token, id=count(number, "token_ids")) for token, number in zip(tokens, ids, strict=True))
    return tokens


def _entry(value: object, place: str) -> Token:
    entry = mapping(value, place)
    top = entry.get("top_logprobs")
    return replace(_token(entry, place), top=_top(top, f"{place}.top_logprobs") if top is not None else ())


def _top(value: object, place: str) -> tuple[Token, ...]:
    return tuple(_token(mapping(item, place), place) for item in sequence(value, place))


def _token(entry: Mapping[str, Any], place: str) -> Token:
    return Token(
        text=text(entry.get("token"), f"{place}.token"),
        id=count(entry.get("id"), f"{place}.id"),
        logprob=finite_number(entry.get("logprob"), f"{place}.logprob"),
        bytes=_numbers(entry.get("bytes"), f"{place}.bytes"),
    )


def _parallel(logprobs: Mapping[str, Any], place: str) -> tuple[Token, ...]:
    texts = sequence(logprobs["tokens"], f"{place}.tokens")
    values = _list_of_length(logprobs, "token_logprobs", place, len(texts))
    tops = _list_of_length(logprobs, "top_logprobs", place, len(texts))
    return tuple(
        Token(
            text=text(name, f"{place}.tokens"),
            logprob=finite_number(value, f"{place}.token_logprobs"),
            top=() if top is None else _top_by_text(top, f"{place}.top_logprobs"),
        )
        for name, value, top in zip(texts, values, tops, strict=True)
    )


def _list_of_length(logprobs: Mapping[str, Any], name: str, place: str, length: int) -> Sequence[Any]:
    if logprobs.get(name) is None:
        return [None] * length
    values = sequence(logprobs[name], f"{place}.{name}")
    if len(values) != length:
        raise FaultError(f"{place} of the answer has {length} tokens, but {len(values)} entries of {name}")
    return values


def _top_by_text(value: object, place: str) -> tuple[Token, ...]:
    return tuple(Token(name, logprob=finite_number(number, place)) for name, number in mapping(value, place).items())


def _input_tokens(choice: Mapping[str, Any], place: str) -> tuple[Token, ...] | None:
    """Return the tokens in vLLM's `prompt_logprobs`: an object for each position, with the ids of tokens as keys."""
    if choice.get("prompt_logprobs") is None:
        return None
    place = f"{place}.prompt_logprobs"
    positions = sequence(choice["prompt_logprobs"], place)
    ids = choice.get("prompt_token_ids")
    known = ids if isinstance(ids, list) and len(ids) == len(positions) else [None] * len(positions)
    return tuple(_input_token(value, number, place) for value, number in zip(positions, known, strict=True))


def _input_token(value: object, known: object, place: str) -> Token:
    number = count(known, "prompt_token_ids")
    if value is None:  # the first token follows nothing
        return Token("", id=number)
    entries = mapping(value, place)
    if not entries:
        raise FaultError(f"{place} of the answer has a position without tokens")
    key = str(number) if str(number) in entries else next(iter(entries))  # the token of the input is the first one
    top = {name: mapping(entry, place) for name, entry in entries.items()}
    return Token(
        text=_decoded_token(top[key], place),
        id=_id(key),
        logprob=finite_number(top[key].get("logprob"), place),
        rank=count(top[key].get("rank"), place),
        top=tuple(
            Token(_decoded_token(entry, place), _id(name), finite_number(entry.get("logprob"), place))
            for name, entry in top.items()
        ),
    )


def _decoded_token(entry: Mapping[str, Any], place: str) -> str:
    return "" if entry.get("decoded_token") is None else text(entry["decoded_token"], place)


def _id(key: str) -> int | None:
    return int(key) if key.isdecimal() and key.isascii() and len(key) <= _MAX_ID_DIGITS else None


def error_in(body: Mapping[str, Any]) -> ServerError | None:
    """Return the error that a body with the status 200, or a chunk of a stream, describes; None if it is an answer."""
    is_answer = bool(body.get("choices")) or bool(body.get("data"))
    is_error = not is_answer and (body.get("object") == "error" or body.get("detail") is not None)
    return error_of(body, None) if is_error or body.get("error") is not None else None


def check_messages(body: Mapping[str, Any], name: str) -> None:
    """Raise FaultError if a choice of a chat has no message.

    Args:
        name: the field of the message: `message`, or `delta` in a stream.
    """
    choices = body.get("choices")
    for position, choice in enumerate(choices if isinstance(choices, list) else ()):
        if isinstance(choice, dict) and "message" not in choice and "delta" not in choice:
            raise FaultError(f"choices[{position}] of the answer to a chat has no field `{name}`")


def error_of(body: object, status: int | None) -> ServerError:
    """Return the error that a body describes, in any of the forms that servers use.

    The forms: `{"error": {"message", "type", "code"}}` of OpenAI, vLLM, SGLang and llama.cpp; the same without the
    outer object in older releases of vLLM; `{"error": TEXT, "error_type": TEXT}` of TGI; `{"detail": ...}` of FastAPI.
    """
    content = body if isinstance(body, dict) else {}
    inner = content.get("error")
    details = inner if isinstance(inner, dict) else content
    messages = [details.get("message"), inner, content.get("detail"), body]
    message = next((value for value in messages if value not in (None, "")), "")
    names = [details.get("code"), details.get("type"), details.get("error_type")]
    code = next((name for name in names if isinstance(name, str) and name), None)
    number = details.get("code")
    if status is None and isinstance(number, int) and number in _ERROR_STATUSES:
        status = number  # an error in a stream, whose HTTP status was 200
    return server_error(
        code or (f"HTTP {status}" if status else "ERROR"),
        message if isinstance(message, str) else excerpt(str(message)),
        status,
    )


def error_of_content(content: bytes, status: int | None) -> ServerError:
    """Return the error that the content of a response, or of an event, describes, which may be any text."""
    try:
        body = decoded(content)
    except FaultError:
        body = cut(content[: 8 * _SHOWN_CHARACTERS].decode(errors="replace"), _SHOWN_CHARACTERS)
    return error_of(body, status)
