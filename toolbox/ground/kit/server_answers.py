"""The answers of inference servers: what the worker beside a server writes, and what the core and comparators read.

In an expected answer, None is not compared. In an answer of a server, None stands for what the server does not tell. A
part of a stream is a `Generation` too, with only what the part adds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

_LONGEST_QUOTE = 60
_LONGEST_ERROR = 160


def cut(text: str, most: int) -> str:
    """Return a text with at most this many characters. An ellipsis replaces the end of a longer text.

    The worker masks the beginning of an API key before the ellipsis.
    """
    return text if len(text) <= most else f"{text[: most - 3]}..."


def quoted(text: str, longest: int = _LONGEST_QUOTE) -> str:
    """Return a text in quotes, with escapes for everything that is not printable, truncated."""
    return repr(cut(text, longest))


@dataclass(frozen=True)
class Token:
    """A token of a text.

    Args:
        id: the number of the token in the vocabulary.
        logprob: the natural logarithm of the token's probability. In an expected answer, NaN means that the server must
            have none.
        rank: 1 for the most probable token at this position.
        top: the most probable tokens at this position; empty if unknown.
        bytes: the bytes of the token.
    """

    text: str
    id: int | None = None
    logprob: float | None = None
    rank: int | None = None
    top: tuple[Token, ...] = ()
    bytes: tuple[int, ...] | None = None

    def __str__(self) -> str:
        """Return the token for a message: `' time' (id 7, logprob -0.25)`."""
        numbers = (("id", self.id), ("logprob", self.logprob))
        parts = [f"{name} {value:.6g}" for name, value in numbers if value is not None]
        return f"{quoted(self.text)} ({', '.join(parts)})" if parts else quoted(self.text)


@dataclass(frozen=True)
class ToolCall:
    """A call of a tool in a chat message.

    Args:
        arguments: a JSON text.
        id: the name of the call, which servers draw at random.
        index: the number of the call in the message. It is not compared.
    """

    name: str | None = None
    arguments: str | None = None
    id: str | None = None
    type: str | None = None
    index: int | None = None


@dataclass(frozen=True)
class ServerError:
    """An error that a server answered, or that a case file expects.

    Args:
        code: the name of a gRPC status such as INVALID_ARGUMENT, or the error code of an HTTP body.
        status: the HTTP status.
        retry_after: if the server refused the request for now (429 or 503 with `Retry-After`), the seconds after which
            it may be sent again. The time is not compared.
    """

    code: str | None = None
    message: str | None = None
    status: int | None = None
    retry_after: float | None = None

    def __str__(self) -> str:
        parts = [self.code, str(self.status) if self.status is not None else None, self.message]
        return cut(": ".join(quoted(part)[1:-1] for part in parts if part), _LONGEST_ERROR) or "an error"


@dataclass(frozen=True)
class Generation:
    """The answer to one request of a batch.

    Args:
        stop_reason: why the text ended, by the names of TGIS: MAX_TOKENS, EOS_TOKEN, STOP_SEQUENCE ..., or another
            reason of the server in capitals.
        tokens: the generated tokens.
        input_tokens: the tokens of the request.
        error: the error that the server sent instead of a text.
        role: the role of a chat message, like the next three fields.
        token_ids: the ids of the generated tokens, if the server lists them beside the tokens.
        offsets: the first character of each input token, and the one after its last character.
    """

    text: str | None = None
    stop_reason: str | None = None
    stop_sequence: str | None = None
    input_token_count: int | None = None
    generated_token_count: int | None = None
    seed: int | None = None
    tokens: tuple[Token, ...] | None = None
    input_tokens: tuple[Token, ...] | None = None
    error: ServerError | None = None
    role: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    tool_calls: tuple[ToolCall, ...] | None = None
    token_ids: tuple[int, ...] | None = None
    offsets: tuple[tuple[int, int], ...] | None = None


def as_json(value: Any) -> Any:
    """Return an answer, or a part of one, as a value of JSON without the fields that are None, or an empty `top`."""
    if isinstance(value, (Token, ToolCall, ServerError, Generation)):
        fields = vars(value).items()
        return {name: as_json(item) for name, item in fields if item is not None and (item or name != "top")}
    if isinstance(value, tuple):
        return [as_json(item) for item in value]
    return "NaN" if isinstance(value, float) and math.isnan(value) else value
