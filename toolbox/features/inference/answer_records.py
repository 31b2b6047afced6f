"""The records of answers in `answers.jsonl`, which a target has written, and of expected answers in `cases.json`.

`answers.jsonl` has one JSON object per line and answer, in the order in which the answers were complete. The file comes
from a target, so its types are validated strictly, and its sizes are limited. Fields that are not read may be anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from toolbox.features.inference.wire_models import Byte
from toolbox.ground.model import generations
from toolbox.ground.model.generations import (
    COUNTS_AND_REASONS,
    MESSAGE_TEXTS,
    TOKEN_LISTS,
    Generation,
    ServerError,
    Token,
    ToolCall,
)
from toolbox.records.runs.evidence_files import RecordFault, complete_lines, first_fault

LONGEST_TEXT: Final = 200_000  # characters of a generated text, which some comparators compare in quadratic time
LARGEST_FILE: Final = 1 << 30  # bytes
LONGEST_LINE: Final = 1 << 25  # bytes
MOST_ANSWERS: Final = 20_000
_MOST_TOKENS: Final = 200_000
_MOST_TOP: Final = 1000
_MOST_BYTES: Final = 1000  # of a token
_MOST_CALLS: Final = 1000
_MOST_GENERATIONS: Final = 10_000
_MOST_CHUNKS: Final = 200_000
_LONGEST_NAME: Final = 1000
_LONGEST_MESSAGE: Final = 100_000

Count = Annotated[int, Field(ge=0, lt=2**63)]
Seed = Annotated[int, Field(ge=0, lt=2**64)]
Word = Annotated[str, Field(max_length=_LONGEST_NAME)]
Text = Annotated[str, Field(max_length=LONGEST_TEXT)]
Offset = Annotated[list[Count], Field(min_length=2, max_length=2)]
Bytes = Annotated[list[Byte], Field(max_length=_MOST_BYTES)]


class _Record(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, allow_inf_nan=False)


class TopRecord(_Record):
    """A probable token at a position."""

    text: Text
    id: Count | None = None
    logprob: float | Literal["NaN"] | None = None
    bytes: Bytes | None = None

    def token(self) -> Token:
        """Return the token."""
        return Token(self.text, self.id, _logprob(self.logprob), bytes=_tuple(self.bytes))


class TokenRecord(TopRecord):
    """A token with its details. In an expected answer, the logprob `NaN` means that the server must not have one."""

    rank: Count | None = None
    top: Annotated[list[TopRecord], Field(max_length=_MOST_TOP)] | None = None

    def token(self) -> Token:
        """Return the token."""
        top = tuple(each.token() for each in self.top or ())
        return Token(self.text, self.id, _logprob(self.logprob), self.rank, top, _tuple(self.bytes))


Tokens = Annotated[list[TokenRecord], Field(max_length=_MOST_TOKENS)]


class ToolCallRecord(_Record):
    """A call of a tool."""

    name: Text | None = None
    arguments: Text | None = None
    id: Text | None = None
    type: Text | None = None

    def call(self) -> ToolCall:
        """Return the call."""
        return ToolCall(self.name, self.arguments, self.id, self.type)


class ErrorRecord(_Record):
    """An error that a server answered."""

    code: Word | None = None
    message: Annotated[str, Field(max_length=_LONGEST_MESSAGE)] | None = None
    status: Count | None = None

    def generation(self) -> Generation:
        """Return the error in place of a text."""
        return Generation(error=ServerError(self.code, self.message, self.status))


class GenerationRecord(_Record):
    """The answer to one request of a batch."""

    text: Text | None = None
    stop_reason: Word | None = None
    stop_sequence: Text | None = None
    input_token_count: Count | None = None
    generated_token_count: Count | None = None
    seed: Seed | None = None
    tokens: Tokens | None = None
    input_tokens: Tokens | None = None
    error: ErrorRecord | None = None
    role: Word | None = None
    reasoning_content: Text | None = None
    refusal: Text | None = None
    tool_calls: Annotated[list[ToolCallRecord], Field(max_length=_MOST_CALLS)] | None = None
    token_ids: Annotated[list[Count], Field(max_length=_MOST_TOKENS)] | None = None
    offsets: Annotated[list[Offset], Field(max_length=_MOST_TOKENS)] | None = None

    def generation(self) -> Generation:
        """Return the answer."""
        if self.error is not None:
            return self.error.generation()
        return replace(
            generations.from_record(self),
            **{name: getattr(self, name) for name in MESSAGE_TEXTS},
            tool_calls=tuple(call.call() for call in self.tool_calls) if self.tool_calls is not None else None,
            token_ids=_tuple(self.token_ids),
            offsets=tuple((start, end) for start, end in self.offsets) if self.offsets is not None else None,
        )


class ChunkRecord(_Record):
    """A part of a stream.

    Args:
        index: the number of the answer in the batch.
        text: the text that the part adds.
        stop_reason: the stop reason; None in all parts but the last one.
        generated_token_count: the number of tokens that were generated so far; None if the part does not say it.
    """

    index: Count = 0
    text: Text | None = None
    stop_reason: Word | None = None
    generated_token_count: Count | None = None


class AnswerRecord(_Record):
    """The answer to a case.

    Args:
        case: the name of the case.
        stream: whether the request was sent as a stream.
        seconds: the time from the request to the end of the answer.
        error: the error that the server answered; None for an answer.
        fault: why there is no complete answer; None if the answer is complete, which an error is too.
        response: the body of the response as the server sent it; None for a stream.
        generations: the answer to each request of the batch.
        chunks: the first parts of a stream; None for other answers.
        chunks_left_out: the number of further parts.
        refusals: how often the server refused the request before this answer (429 or 503 with `Retry-After`).
    """

    case: Word
    stream: bool = False
    seconds: Annotated[float, Field(ge=0)] | None = None
    error: ErrorRecord | None = None
    fault: Annotated[str, Field(max_length=_LONGEST_MESSAGE)] | None = None
    response: Any = None
    generations: Annotated[list[GenerationRecord], Field(max_length=_MOST_GENERATIONS)] = []
    chunks: Annotated[list[ChunkRecord], Field(max_length=_MOST_CHUNKS)] | None = None
    chunks_left_out: Count = 0
    refusals: Count = 0


def read(directory: Path, file: str) -> Iterator[AnswerRecord | RecordFault]:
    """Yield the record of each line of a file, or why the line is not a record.

    Raises:
        RecordFault: the file is missing, empty or too large.
    """
    limits = {"largest": LARGEST_FILE, "longest": LONGEST_LINE, "most": MOST_ANSWERS}
    for number, line in complete_lines(directory, file, **limits, nothing="no case was answered"):
        yield _record(line, file, number)


def _record(line: bytes, file: str, number: int) -> AnswerRecord | RecordFault:
    try:
        return AnswerRecord.model_validate_json(line)
    except ValidationError as error:
        return RecordFault(f"{file}:{number} is not an answer: {first_fault(error)}", number)


def as_json(generation: Generation) -> dict[str, Any]:
    """Return an expected answer as the JSON object that `GenerationRecord` reads, without the fields that are None."""
    if (error := generation.error) is not None:
        return {"error": _given({"code": error.code, "message": error.message, "status": error.status})}
    fields = {name: getattr(generation, name) for name in ("text", *COUNTS_AND_REASONS, *MESSAGE_TEXTS)}
    fields["tool_calls"] = _list(generation.tool_calls, lambda call: _given(asdict(call)))
    fields["token_ids"] = _list(generation.token_ids)
    fields["offsets"] = _list(generation.offsets, list)
    for name in TOKEN_LISTS:
        fields[name] = _list(getattr(generation, name), _token_json)
    return _given(fields)


def _token_json(token: Token) -> dict[str, Any]:
    is_without = token.logprob is not None and math.isnan(token.logprob)
    fields = {
        "id": token.id,
        "logprob": "NaN" if is_without else token.logprob,
        "rank": token.rank,
        "bytes": _list(token.bytes),
    }
    top = [_token_json(each) for each in token.top]
    return {"text": token.text, **_given(fields), **({"top": top} if top else {})}


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _list(items: Sequence[Any] | None, convert: Callable[[Any], Any] = lambda item: item) -> list[Any] | None:
    return [convert(item) for item in items] if items is not None else None


def _tuple(numbers: Sequence[int] | None) -> tuple[int, ...] | None:
    return tuple(numbers) if numbers is not None else None


def _logprob(value: float | str | None) -> float | None:
    return math.nan if isinstance(value, str) else value
