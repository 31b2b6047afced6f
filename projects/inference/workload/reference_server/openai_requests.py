"""
The requests of OpenAI's protocol: their bodies, the options they ask for, and the errors that refuse them.

Names beyond OpenAI's are those of vLLM: `min_tokens`, `top_k`, `repetition_penalty` and `truncate_prompt_tokens`. A
parameter that the server does not implement is an error, unless its value asks for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Annotated, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest

from .generation import MAX_QUOTED, Options, OverloadedError, RequestError, Sampling, StoppingError

B = TypeVar("B", bound="Body")
T = TypeVar("T")
# Otherwise, a list of very many wrong items is answered only after seconds.
List = Annotated[list[T], Field(fail_fast=True)]

MAX_BODY_BYTES = 1 << 20
GREEDY_TEMPERATURE = 1e-5  # below, take the most probable token
# The names of the protocol for the options that have other names there.
NAMES: Final[Mapping[str, str]] = {
    "max_new_tokens": "max_tokens",
    "min_new_tokens": "min_tokens",
    "stop_sequences": "stop",
    "truncate_input_tokens": "truncate_prompt_tokens",
    "top_tokens": "logprobs",
}
# Parameters that are not implemented, with the values that ask for nothing.
NEUTRAL: Final[Mapping[str, Sequence[object]]] = {
    "best_of": (1,),
    "echo": (False,),
    "frequency_penalty": (0,),
    "functions": ([],),
    "logit_bias": ({},),
    "modalities": (["text"],),
    "parallel_tool_calls": (True, False),  # there are no tools
    "presence_penalty": (0,),
    "response_format": ({"type": "text"},),
    "store": (False,),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
}


class ApiError(Exception):
    """A request is refused with a status and a body as OpenAI's."""

    def __init__(self, status: int, message: str, *, parameter: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.parameter = parameter
        self.code = code

    @property
    def body(self) -> Mapping[str, object]:
        """The content of the response."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"error": {"message": str(self), "type": kind, "param": self.parameter, "code": self.code}}


class Block(BaseModel):
    """An object of a request: no unknown names, no conversion between types, no NaN."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class StreamOptions(Block):
    """What a stream contains besides the text."""

    include_usage: bool = False


class Body(Block):
    """What both kinds of completions have in common."""

    model: str
    max_tokens: int | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: float | None = None
    n: Annotated[int, Field(ge=1, le=128)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    stop: str | List[str] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**64)] | None = None
    user: str | None = None
    metadata: dict[str, str] | None = None
    min_tokens: int = 0
    top_k: Annotated[int, Field(ge=-1)] = 0
    repetition_penalty: float = 1.0
    truncate_prompt_tokens: Annotated[int, Field(ge=1)] | None = None

    def options(self, *, index: int, seed: int, length: int | None, top_tokens: int | None) -> Options:
        """Return the options of one of the generations of this request."""
        temperature = 1.0 if self.temperature is None else self.temperature
        sampling = None
        if temperature >= GREEDY_TEMPERATURE:
            sampling = Sampling(
                seed=seed,
                index=index,
                temperature=temperature,
                top_k=max(self.top_k, 0),
                top_p=1.0 if self.top_p is None else self.top_p,
            )
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return Options(
            max_new_tokens=length,
            min_new_tokens=self.min_tokens,
            stop_sequences=tuple(stop),
            sampling=sampling,
            repetition_penalty=self.repetition_penalty,
            truncate_input_tokens=self.truncate_prompt_tokens or 0,
            details=top_tokens is not None,
            top_tokens=top_tokens or 0,
        )


Token = Annotated[int, Field(ge=0)]


class CompletionBody(Body):
    """A request for completions."""

    prompt: str | List[str] | List[Token] | List[List[Token]]
    logprobs: Annotated[int, Field(ge=0, le=5)] | None = None


class Part(Block):
    """A part of a message."""

    type: Literal["text"]
    text: str


class ChatMessage(Block):
    """A message of a chat."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | List[Part]
    name: str | None = None

    @property
    def text(self) -> str:
        """The text of all parts."""
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class ChatBody(Body):
    """A request for chat completions."""

    messages: Annotated[List[ChatMessage], Field(min_length=1)]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None


async def parsed(request: HttpRequest, kind: type[B]) -> B:
    """Return the body of a request. Raise ApiError if it is too large, not JSON, or not of the right kind."""
    content = b""
    async for chunk in request.stream():
        content += chunk
        if len(content) > MAX_BODY_BYTES:
            raise ApiError(413, f"the body has more than {MAX_BODY_BYTES} bytes")
    try:
        document = from_json(content, allow_inf_nan=False)
    except ValueError as error:
        raise ApiError(400, f"the body is not valid JSON: {error}") from None
    if not isinstance(document, dict):
        raise ApiError(400, "the body is not a JSON object")
    for name, values in NEUTRAL.items():
        if document.pop(name, None) not in (None, *values):
            raise ApiError(400, f"{name} is not supported by this server", parameter=name)
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        raise _refusal(error) from None


def _refusal(error: ValidationError) -> ApiError:
    """Return the refusal of a body because of its first wrong parameter, which may be wrong for several types."""
    errors = error.errors(include_url=False, include_input=False)
    names = [_name(single["loc"]) for single in errors]
    reasons = dict.fromkeys(single["msg"] for name, single in zip(names, errors, strict=True) if name == names[0])
    return ApiError(400, f"{names[0]}: {', or '.join(reasons)}", parameter=names[0])


def _name(location: Sequence[str | int]) -> str:
    """Return the name of a parameter. Pydantic adds names of types, as `str` or `list[str]`, after that of a union."""
    first, *others = map(str, location)
    return ".".join([first, *takewhile(lambda part: part != "str" and "[" not in part, others)])[:MAX_QUOTED]


def as_api_error(error: Exception) -> ApiError:
    """Return the refusal that an error stands for."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, RequestError):
        message = str(error)
        for ours, theirs in NAMES.items():
            message = message.replace(ours, theirs)
        return ApiError(400, message, parameter=NAMES.get(error.parameter, error.parameter))
    if isinstance(error, OverloadedError):
        return ApiError(429, str(error), code="overloaded")
    if isinstance(error, HTTPException):
        return ApiError(error.status_code, error.detail)
    return ApiError(503 if isinstance(error, StoppingError) else 500, str(error))
