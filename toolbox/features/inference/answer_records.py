"""Reads answers: those in `answers.jsonl`, which a target has written, and the expected ones in `expectations.json`.

`answers.jsonl` has one JSON object per line and answer, in the order in which the answers were complete. The file comes
from a target, so its types are validated strictly, and its sizes are limited. Fields that are not read may be anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetPydanticSchema,
    ValidationError,
)
from pydantic_core import CoreSchema, core_schema

from toolbox.features.inference.wire_models import Byte
from toolbox.ground.kit.server_answers import Generation, ServerError, Token, ToolCall
from toolbox.records.runs.evidence_files import RecordFault, complete_lines, first_fault

LONGEST_TEXT: Final = 200_000  # characters of a generated text, which some comparators compare in quadratic time
LARGEST_FILE: Final = 1 << 30  # bytes
LONGEST_LINE: Final = 1 << 25  # bytes
MAX_ANSWERS: Final = 20_000
_MAX_TOKENS: Final = 200_000
_MAX_TOP: Final = 1000
_MAX_BYTES: Final = 1000  # of a token
_MAX_CALLS: Final = 1000
_MAX_GENERATIONS: Final = 10_000
_MAX_CHUNKS: Final = 200_000
_LONGEST_NAME: Final = 1000
_LONGEST_MESSAGE: Final = 100_000

Count = Annotated[int, Field(ge=0, lt=2**63)]
Seed = Annotated[int, Field(ge=0, lt=2**64)]
Word = Annotated[str, Field(max_length=_LONGEST_NAME)]
Text = Annotated[str, Field(max_length=LONGEST_TEXT)]
Message = Annotated[str, Field(max_length=_LONGEST_MESSAGE)]
Seconds = Annotated[float, Field(ge=0)]
_STRICT: Final = core_schema.CoreConfig(strict=True, allow_inf_nan=False)


def _items(kind: Any, most: int, least: int = 0) -> Any:
    return Annotated[list[kind], Field(min_length=least, max_length=most), AfterValidator(tuple)]


_LIMITS: Final[dict[Any, Any]] = {
    str: Text,
    str | None: Text,
    int | None: Count,
    float | None: Annotated[float | Literal["NaN"], AfterValidator(float)],
    tuple[int, ...] | None: _items(Count, _MAX_TOKENS),
}


def _limited(kind: type, **limited: Any) -> GetPydanticSchema:
    """Return the annotation with which pydantic reads a dataclass from JSON. Null is valid where None is the default.

    Args:
        limited: the types of fields whose limits are not those of their type in `_LIMITS`.
    """
    hints = get_type_hints(kind)
    types = {field: limited.get(field.name) or _LIMITS[hints[field.name]] for field in fields(kind)}

    def schema(_: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        parts = []
        for field, limited_type in types.items():
            part = handler.generate_schema(limited_type if field.default is not None else limited_type | None)
            if field.default is not MISSING:
                part = core_schema.with_default_schema(part, default=field.default)
            parts.append(core_schema.dataclass_field(field.name, part))
        arguments = core_schema.dataclass_args_schema(kind.__name__, parts)
        return core_schema.dataclass_schema(kind, arguments, [field.name for field in types], config=_STRICT)

    return GetPydanticSchema(schema)


_BYTES: Final = _items(Byte, _MAX_BYTES)
_NO_TOP: Final = Annotated[Any, AfterValidator(lambda _: ())]
_TOP: Final = _items(Annotated[Token, _limited(Token, bytes=_BYTES, top=_NO_TOP)], _MAX_TOP)
_TOP_OR_NULL: Final = Annotated[_TOP | None, AfterValidator(lambda top: top or ())]
_TOKENS: Final = _items(Annotated[Token, _limited(Token, bytes=_BYTES, top=_TOP_OR_NULL)], _MAX_TOKENS)
ErrorRecord = Annotated[ServerError, _limited(ServerError, code=Word, message=Message, retry_after=Seconds)]
GenerationRecord = Annotated[
    Generation,
    _limited(
        Generation,
        stop_reason=Word,
        seed=Seed,
        tokens=_TOKENS,
        input_tokens=_TOKENS,
        error=ErrorRecord,
        role=Word,
        tool_calls=_items(Annotated[ToolCall, _limited(ToolCall)], _MAX_CALLS),
        offsets=_items(_items(Count, 2, 2), _MAX_TOKENS),
    ),
    AfterValidator(lambda read: read if read.error is None else Generation(error=read.error)),
]


class _Record(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, allow_inf_nan=False)


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
    seconds: Seconds | None = None
    error: ErrorRecord | None = None
    fault: Message | None = None
    response: Any = None
    generations: Annotated[list[GenerationRecord], Field(max_length=_MAX_GENERATIONS)] = []
    chunks: Annotated[list[ChunkRecord], Field(max_length=_MAX_CHUNKS)] | None = None
    chunks_left_out: Count = 0
    refusals: Count = 0


def read(directory: Path, file: str) -> Iterator[AnswerRecord | RecordFault]:
    """Yield the record of each line of a file, or why the line is not a record.

    Raises:
        RecordFault: the file is missing, empty or too large.
    """
    limits = {"largest": LARGEST_FILE, "longest": LONGEST_LINE, "most": MAX_ANSWERS}
    for number, line in complete_lines(directory, file, **limits, nothing="no case was answered"):
        yield _record(line, file, number)


def _record(line: bytes, file: str, number: int) -> AnswerRecord | RecordFault:
    try:
        return AnswerRecord.model_validate_json(line)
    except ValidationError as error:
        return RecordFault(f"{file}:{number} is not an answer: {first_fault(error)}", number)
