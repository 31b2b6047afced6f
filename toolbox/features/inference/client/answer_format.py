"""The cases that are sent to a server, and the answers, with their form in the files `cases.json` and `answers.jsonl`.

Both protocols normalise their responses to `Generation`. `merged` puts the parts of a stream together.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from toolbox.ground.kit.server_answers import Generation, ServerError, ToolCall, as_json, cut

from .key_mask import NO_KEY, KeyMask

T = TypeVar("T")

NOT_FINISHED: Final = "NOT_FINISHED"
UNFINISHED: Final = (None, NOT_FINISHED)
FMAAS_KINDS: Final = ("fmaas", "tokenize", "model_info")
OPENAI_KINDS: Final = ("completions", "chat", "models")
# Requests for text, which a server can answer with a stream.
GENERATING: Final = ("fmaas", "completions", "chat")
# Texts that may be those of a server.
_FAULT_CHARACTERS: Final = 1000
_CODE_CHARACTERS: Final = 200
_MESSAGE_CHARACTERS: Final = 10_000


class SettingsError(Exception):
    """The settings or the cases are invalid, or a library is missing. The message is for the user."""


class InvalidRequestError(Exception):
    """The request of a case cannot be sent, for example because it has an unknown field."""


class FaultError(Exception):
    """The server did not give a complete answer that can be decoded. The message says what is wrong."""


def unfinished_stream(indexes: Sequence[int], count: int) -> FaultError:
    """Return the error of a stream that ended without the stop reasons of some of its answers."""
    numbers = ", ".join(str(index + 1) for index in indexes)
    return FaultError(
        "the stream ended without a stop reason" + (f" for answer {numbers} of the batch" if count > 1 else "")
    )


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much of a server's answer is accepted.

    Args:
        seconds: time for one request, from its sending until its answer is complete.
        body_bytes: size of an answer, the whole stream included.
        event_bytes: size of an event or a message in a stream.
        chunks: number of chunks of a stream that an answer keeps.
        line_characters: size of the record of an answer.
    """

    seconds: float = 120.0
    body_bytes: int = 16 << 20
    event_bytes: int = 4 << 20
    chunks: int = 10_000
    line_characters: int = 32_000_000


@dataclass(frozen=True, kw_only=True)
class Case:
    """A request with a name.

    Args:
        protocol: one of FMAAS_KINDS and OPENAI_KINDS.
        stream: send the request once more, for an answer that is a stream.
        retries: how often a request that the server refuses for now is sent again.
    """

    name: str
    protocol: str
    request: Mapping[str, Any]
    stream: bool = False
    retries: int = 0


def merged(parts: Sequence[Generation]) -> Generation:
    """Join the parts of a stream to one generation. Later counts replace earlier ones."""
    reasons = [part.stop_reason for part in parts if part.stop_reason not in UNFINISHED]
    tokens = _joined([part.tokens for part in parts])
    counted = None if tokens is None else len(tokens)
    return Generation(
        text="".join(part.text or "" for part in parts),
        stop_reason=reasons[-1] if reasons else NOT_FINISHED,
        input_token_count=_last([part.input_token_count for part in parts]),
        generated_token_count=_last([counted, *(part.generated_token_count for part in parts)]),
        seed=_last([part.seed for part in parts]),
        tokens=tokens,
        input_tokens=_joined([part.input_tokens for part in parts]),
        stop_sequence=_last([part.stop_sequence for part in parts]),
        role=_last([part.role for part in parts]),
        reasoning_content=_concatenated([part.reasoning_content for part in parts]),
        refusal=_concatenated([part.refusal for part in parts]),
        tool_calls=_merged_calls(_joined([part.tool_calls for part in parts])),
        token_ids=_joined([part.token_ids for part in parts]),
    )


def _merged_calls(parts: Sequence[ToolCall] | None) -> tuple[ToolCall, ...] | None:
    """Join the parts of calls of tools, as the client library of OpenAI does: names and arguments are concatenated."""
    if parts is None:
        return None
    by_index: dict[int, list[ToolCall]] = {}
    for part in parts:
        by_index.setdefault(part.index or 0, []).append(part)
    return tuple(
        ToolCall(
            index=index,
            name=_concatenated([part.name for part in calls]),
            arguments=_concatenated([part.arguments for part in calls]),
            id=_last([part.id for part in calls]),
            type=_last([part.type for part in calls]),
        )
        for index, calls in sorted(by_index.items())
    )


def _concatenated(texts: Sequence[str | None]) -> str | None:
    present = [text for text in texts if text is not None]
    return "".join(present) if present else None


def _last(values: Sequence[T | None]) -> T | None:
    present = [value for value in values if value is not None]
    return present[-1] if present else None


def _joined(lists: Sequence[Sequence[T] | None]) -> tuple[T, ...] | None:
    present = [items for items in lists if items is not None]
    return tuple(item for items in present for item in items) if present else None


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """A part of a stream.

    Args:
        index: number of the generation that the part belongs to.
        seconds: time of its arrival, since the request was sent.
        raw: the part as the server sent it.
    """

    index: int
    seconds: float
    part: Generation
    raw: Mapping[str, Any]


def server_error(code: str, message: str, status: int | None = None) -> ServerError:
    """Return an error whose texts are cut."""
    return ServerError(cut(code, _CODE_CHARACTERS), cut(message, _MESSAGE_CHARACTERS), status)


@dataclass(kw_only=True)
class Answer:
    """What a server answered to a case. It is filled while the answer arrives, so that a fault does not lose the rest.

    Args:
        case: the name of the case.
        stream: whether the answer is a stream.
        seconds: time from the sending of the request until the end of the answer.
        fault: why the answer is not complete.
        refusals: how often the server refused the request before this answer.
        is_resent: whether the request was sent twice, because the server had closed the connection that was reused.
        clock: the time in seconds.
        last_chunk_seconds: time from the sending of the request until the arrival of the last chunk.
    """

    case: str
    stream: bool
    limits: Limits = field(default_factory=Limits)
    seconds: float = 0.0
    error: ServerError | None = None
    fault: str | None = None
    response: Mapping[str, Any] | None = None
    generations: Sequence[Generation] = ()
    chunks: list[Chunk] = field(default_factory=list)
    chunks_left_out: int = 0
    refusals: int = 0
    is_resent: bool = False
    clock: Callable[[], float] = time.monotonic
    last_chunk_seconds: float = field(default=0.0, init=False)
    _parts: dict[int, list[Generation]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._started = self.clock()

    def add(self, index: int, part: Generation, raw: Mapping[str, Any]) -> None:
        """Add a chunk of a stream that has just arrived. See `Chunk` for the arguments."""
        self._parts.setdefault(index, []).append(part)
        self.last_chunk_seconds = self.clock() - self._started
        if len(self.chunks) < self.limits.chunks:
            self.chunks.append(Chunk(index=index, seconds=self.last_chunk_seconds, part=part, raw=raw))
        else:
            self.chunks_left_out += 1

    def end_stream(self) -> None:
        """Put the chunks together. Raise FaultError if a generation has not ended."""
        self.generations = [merged(self._parts[index]) for index in self.generation_indexes]
        unfinished = [
            index
            for index, generation in zip(self.generation_indexes, self.generations, strict=True)
            if generation.stop_reason == NOT_FINISHED
        ]
        if unfinished:
            raise unfinished_stream(unfinished, len(self.generations))
        if not self._parts:
            raise FaultError("the stream ended without a generation")

    def end(self) -> None:
        """Note the time of the end of the answer."""
        self.seconds = self.clock() - self._started

    @property
    def generation_indexes(self) -> Sequence[int]:
        """The indexes of the generations that have parts in the stream."""
        return sorted(self._parts)

    def line(self, mask: KeyMask = NO_KEY) -> str:
        """Return the line of `answers.jsonl`, without the line break and without the key.

        If the line would be too long for the reader of the file, or contains the key in parts, the answer becomes a
        fault without its content.
        """
        content = self._content()
        line = mask(json.dumps(content, allow_nan=False))
        reason = None
        if len(line) > self.limits.line_characters:
            reason = f"the line of the answer is longer than {self.limits.line_characters} characters"
        elif mask.is_in_parts(content):
            reason = "the answer contains the API key in parts, and is left out"
        if reason is None:
            return line
        self.fault = f"{self.fault}; {reason}" if self.fault else reason
        self.response, self.generations, self.chunks = None, (), []
        return mask(json.dumps(self._content(), allow_nan=False))

    def _content(self) -> Mapping[str, Any]:
        content: dict[str, Any] = {
            "case": self.case,
            "stream": self.stream,
            "seconds": round(self.seconds, 6),
            "error": as_json(self.error),
            "fault": self.fault and cut(self.fault, _FAULT_CHARACTERS),
            "response": self.response,
            "generations": as_json(tuple(self.generations)),
            "refusals": self.refusals,
        }
        if self.stream:
            content["chunks"] = [_chunk(chunk) for chunk in self.chunks]
            content["chunks_left_out"] = self.chunks_left_out
        return content


def _chunk(chunk: Chunk) -> dict[str, Any]:
    part = replace(chunk.part, stop_reason=None) if chunk.part.stop_reason == NOT_FINISHED else chunk.part
    return {"index": chunk.index, "seconds": round(chunk.seconds, 6), **as_json(part), "raw": chunk.raw}
