"""The requests and responses of case files, as pydantic models.

The fmaas messages have the field names of TGIS's `proto/generation.proto`, in snake_case or camelCase, also mixed: the
JSON form of protobuf accepts both. Only the fields of the fmaas requests are checked here, because servers with the API
of OpenAI have fields of their own. A response has only fields that are compared, and all of its fields have a value.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from toolbox.features.inference.client import openai_bodies
from toolbox.ground.kit.server_answers import Generation, Token, ToolCall
from toolbox.ground.model import model_answers
from toolbox.ground.model.text import abbreviated

MAX_REQUESTS: Final = 1000  # in a batch


def _digits(value: object) -> object:
    """Convert the text of a 64-bit number, which protobuf writes in quotes, to the number."""
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 20 else value  # noqa: PLR2004


def _not_a_number(value: object) -> object:
    return math.nan if value == "NaN" else value


def _not_infinite(value: float) -> float:
    if math.isinf(value):
        raise ValueError("must be finite: an infinite tolerance accepts every logprob")
    return value


def is_json(value: Any) -> Any:
    """Return a value. Refuse values that JSON cannot express, such as the dates of YAML."""
    if isinstance(value, Mapping):
        if wrong := [key for key in value if not isinstance(key, str)]:
            raise ValueError(f"the key {abbreviated(wrong[0])} must be a text: write it in quotes")
        for item in value.values():
            is_json(item)
    elif isinstance(value, list):
        for item in value:
            is_json(item)
    elif not (
        value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value))
    ):
        raise ValueError(f"{abbreviated(value)} is not a value of JSON: write a text in quotes")
    return value


Count = Annotated[int, Field(ge=0, lt=2**32)]
Seed = Annotated[int, BeforeValidator(_digits), Field(ge=0, lt=2**64)]
Byte = Annotated[int, Field(ge=0, lt=256)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Logprob = Annotated[float, BeforeValidator(_not_a_number), AfterValidator(_not_infinite)]
StopReason = Literal[
    "NOT_FINISHED", "MAX_TOKENS", "EOS_TOKEN", "CANCELLED", "TIME_LIMIT", "STOP_SEQUENCE", "TOKEN_LIMIT", "ERROR"
]


class Message(BaseModel):
    """A message of protobuf, in its JSON form. Null is the same as a missing field."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", strict=True, frozen=True)


# The requests of fmaas


class Sampling(Message):
    """How the next token is drawn."""

    temperature: Number | None = None
    top_k: Count | None = None
    top_p: Number | None = None
    typical_p: Number | None = None
    seed: Seed | None = None


class Stopping(Message):
    """When the generation ends."""

    max_new_tokens: Count | None = None
    min_new_tokens: Count | None = None
    time_limit_millis: Count | None = None
    stop_sequences: list[str] | None = None
    include_stop_sequence: bool | None = None


class ResponseOptions(Message):
    """What the response contains."""

    input_text: bool | None = None
    generated_tokens: bool | None = None
    input_tokens: bool | None = None
    token_logprobs: bool | None = None
    token_ranks: bool | None = None
    top_n_tokens: Count | None = None


class LengthPenalty(Message):
    """From which token on the end of the text becomes more probable, and how fast."""

    start_index: Count | None = None
    decay_factor: Number | None = None


class Decoding(Message):
    """Penalties of tokens."""

    repetition_penalty: Number | None = None
    length_penalty: LengthPenalty | None = None


class Parameters(Message):
    """The parameters of all requests of a batch."""

    method: Literal["GREEDY", "SAMPLE"] | None = None
    sampling: Sampling | None = None
    stopping: Stopping | None = None
    response: ResponseOptions | None = None
    decoding: Decoding | None = None
    truncate_input_tokens: Count | None = None


class Text(Message):
    """One request of a batch."""

    text: str = ""


Texts = Annotated[list[Text], Field(max_length=MAX_REQUESTS)]


class Generate(Message):
    """`BatchedGenerationRequest`."""

    model_id: str = ""
    prefix_id: str | None = None
    requests: Texts = []
    params: Parameters | None = None


class Tokenize(Message):
    """`BatchedTokenizeRequest`."""

    model_id: str = ""
    requests: Texts = []
    return_tokens: bool | None = None
    return_offsets: bool | None = None
    truncate_input_tokens: Count | None = None


# The requests of OpenAI's API


class _OpenRequest(BaseModel):
    """A request whose other fields are not checked."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)


class Completion(_OpenRequest):
    """`POST /v1/completions`."""

    prompt: str | list[str] | list[int] | list[list[int]]


class Chat(_OpenRequest):
    """`POST /v1/chat/completions`."""

    messages: Annotated[list[dict[str, Any]], Field(min_length=1)]


def _kind_of_request(request: Any) -> str:
    if not isinstance(request, Mapping):
        return "fmaas" if not isinstance(request, BaseModel) else type(request).__name__
    if "prompt" in request:
        return "completions"
    if "messages" in request:
        return "chat"
    return (
        "tokenize" if request.keys() & {"return_tokens", "returnTokens", "return_offsets", "returnOffsets"} else "fmaas"
    )


AnyRequest = Annotated[
    Annotated[Generate, Tag("fmaas")]
    | Annotated[Tokenize, Tag("tokenize")]
    | Annotated[Completion, Tag("completions")]
    | Annotated[Chat, Tag("chat")],
    Discriminator(_kind_of_request),
]


# The responses


_OF_SERVER: Final = "of a server"  # the context of the validation of a response of a server


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def has_value(value: Any) -> Any:
    """Return a value of an expected response. Refuse null, which would not be compared."""
    if value is None:
        raise ValueError("must have a value that can be compared, or be removed")
    return value


class ResponsePart(Message):
    """A part of an expected response, in which no field is null."""

    _has_value = field_validator("*", mode="before")(has_value)


class TopToken(ResponsePart):
    """A probable token at a position."""

    text: str
    id: Count | None = None
    logprob: Logprob | None = None

    def token(self) -> Token:
        """Return the token."""
        return Token(self.text, self.id, self.logprob)


class TokenInfo(TopToken):
    """A token with its details."""

    rank: Count | None = None
    top_tokens: list[TopToken] = Field(default=[], min_length=1)

    def token(self) -> Token:
        """Return the token."""
        return Token(self.text, self.id, self.logprob, self.rank, tuple(top.token() for top in self.top_tokens))


class GenerationResponse(ResponsePart):
    """The answer to one request of a batch."""

    input_token_count: Count | None = None
    generated_token_count: Count | None = None
    text: str | None = None
    stop_reason: StopReason | None = None
    stop_sequence: str | None = None
    seed: Seed | None = None
    tokens: list[TokenInfo] | None = None
    input_tokens: list[TokenInfo] | None = None

    def generation(self) -> Generation:
        """Return the answer."""
        fields: dict[str, Any] = dict(self)
        for name in ("tokens", "input_tokens"):
            fields[name] = tuple(map(TokenInfo.token, fields[name])) if fields[name] is not None else None
        return Generation(**fields)


class Offset(ResponsePart):
    """The characters of a token in the text."""

    start: Count = 0
    end: Count = 0


class TokenizeResponse(ResponsePart):
    """The tokens of one text."""

    token_count: Count
    tokens: list[str] | None = None
    offsets: list[Offset] | None = None

    def generation(self) -> Generation:
        """Return the tokens as the input tokens of an answer without a text."""
        tokens = tuple(map(Token, self.tokens)) if self.tokens is not None else None
        offsets = tuple((each.start, each.end) for each in self.offsets) if self.offsets is not None else None
        return Generation(input_token_count=self.token_count, input_tokens=tokens, offsets=offsets)


class TokenizedText(TokenizeResponse):
    """The tokens of one text as a server sends them. Protobuf leaves out the count 0."""

    token_count: Count = 0


class TokenizedBatch(Message):
    """The response of a server to a request for tokens."""

    responses: list[TokenizedText] = []


def _kind_of_answer(answer: Any) -> str:
    is_tokenized = isinstance(answer, Mapping) and answer.keys() & {"token_count", "tokenCount"}
    return "tokenize" if is_tokenized or isinstance(answer, TokenizeResponse) else "generation"


class FmaasResponse(ResponsePart):
    """The responses to a batch."""

    responses: list[
        Annotated[
            Annotated[GenerationResponse, Tag("generation")] | Annotated[TokenizeResponse, Tag("tokenize")],
            Discriminator(_kind_of_answer),
        ]
    ] = []

    def generations(self) -> list[Generation]:
        """Return the answer to each request."""
        return [response.generation() for response in self.responses]


class _OpenPart(BaseModel):
    """A part of an expected response of OpenAI's API, in which no field is null."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    _has_value = field_validator("*", mode="before")(has_value)

    @model_validator(mode="before")
    @classmethod
    def _of_server(cls, fields: Any, info: ValidationInfo) -> Any:
        is_of_server = info.context == _OF_SERVER and isinstance(fields, Mapping)
        return cls.recordable(fields) if is_of_server else fields

    @classmethod
    def recordable(cls, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a response of a server that a case file can expect."""
        return {name: value for name, value in fields.items() if name in cls.model_fields and value is not None}


class _ChatTopToken(_OpenPart):
    token: str
    id: Count | None = None
    logprob: Logprob | None = None
    bytes: list[Byte] | None = None

    def as_token(self) -> Token:
        return Token(self.token, self.id, self.logprob, bytes=tuple(self.bytes) if self.bytes is not None else None)


class _ChatToken(_ChatTopToken):
    top_logprobs: list[_ChatTopToken] = Field(default=[], min_length=1)

    @classmethod
    def recordable(cls, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Leave out an empty list."""
        return {name: value for name, value in super().recordable(fields).items() if name != "top_logprobs" or value}

    def as_token(self) -> Token:
        return replace(super().as_token(), top=tuple(top.as_token() for top in self.top_logprobs))


class _Logprobs(_OpenPart):
    """The logprobs of a completion (`tokens` ...) or of a chat completion (`content`).

    A null in `token_logprobs` means that the server has no logprob. The first token of a repeated prompt has none.
    """

    tokens: list[str] | None = None
    token_logprobs: list[Logprob | None] | None = None
    top_logprobs: list[dict[str, Logprob] | None] | None = None
    content: list[_ChatToken] | None = None

    @model_validator(mode="after")
    def _has_one_form(self) -> _Logprobs:
        lists: list[Sequence[object]] = [
            each for each in (self.tokens, self.token_logprobs, self.top_logprobs) if each is not None
        ]
        if (self.tokens is None) is (self.content is None):
            raise ValueError("must have either `tokens` or `content`")
        if self.content is not None and lists:
            raise ValueError("`token_logprobs` and `top_logprobs` belong to `tokens`, not to `content`")
        if len({len(each) for each in lists}) > 1:
            raise ValueError("`tokens`, `token_logprobs` and `top_logprobs` must have the same number of items")
        if _lacks_top(self.token_logprobs, self.top_logprobs):
            raise ValueError("`top_logprobs` must list top tokens for each of the `tokens` that has a logprob")
        return self

    @classmethod
    def recordable(cls, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Leave out top tokens that the server does not know for each token."""
        known = super().recordable(fields)
        if _lacks_top(known.get("token_logprobs"), known.get("top_logprobs")):
            known.pop("top_logprobs")
        return known

    def as_tokens(self) -> tuple[Token, ...]:
        if self.content is not None:
            return tuple(token.as_token() for token in self.content)
        texts = self.tokens or []
        known = self.token_logprobs
        logprobs = [math.nan if each is None else each for each in known] if known else [None] * len(texts)
        tops = self.top_logprobs or [None] * len(texts)
        return tuple(
            Token(text, None, logprob, None, tuple(Token(other, None, value) for other, value in (top or {}).items()))
            for text, logprob, top in zip(texts, logprobs, tops, strict=True)
        )


def _lacks_top(logprobs: Sequence[Any] | None, tops: Sequence[Any] | None) -> bool:
    """Return whether a token with a logprob has no top tokens, although others have."""
    if tops is None:
        return False
    known = [_not_a_number(each) for each in logprobs] if logprobs else [0.0] * len(tops)
    return any(not top and not _is_none(each) for each, top in zip(known, tops, strict=False))


def _is_none(logprob: Any) -> bool:
    return logprob is None or (isinstance(logprob, float) and math.isnan(logprob))


def _as_json_text(arguments: Any) -> Any:
    """Return the arguments of a tool as a JSON text. Raise ValueError if a text is not JSON."""
    if isinstance(arguments, Mapping):
        return json.dumps(is_json(arguments), ensure_ascii=False)
    if isinstance(arguments, str) and arguments:
        model_answers.json_value(arguments)
    return arguments


class _Function(_OpenPart):
    name: str | None = None
    arguments: Annotated[str | None, BeforeValidator(_as_json_text)] = None


class _ToolCall(_OpenPart):
    id: str | None = None
    type: str | None = None
    function: _Function

    @classmethod
    def recordable(cls, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Leave out the id, which is drawn at random."""
        return {name: value for name, value in super().recordable(fields).items() if name != "id"}

    def as_call(self) -> ToolCall:
        return ToolCall(self.function.name, self.function.arguments, self.id, self.type)


class _ChatMessage(_OpenPart):
    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None

    @classmethod
    def recordable(cls, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Write no content as an empty text, and read the field `reasoning` of newer releases of vLLM, too."""
        return super().recordable({"content": "", "reasoning_content": fields.get("reasoning"), **_given(fields)})


class _Choice(_OpenPart):
    index: Count | None = None
    text: str | None = None
    message: _ChatMessage | None = None
    finish_reason: str | None = None
    stop_reason: str | None = None
    matched_stop: str | None = None
    logprobs: _Logprobs | None = None
    token_ids: list[Count] | None = None

    @classmethod
    def recordable(cls, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Leave out ids of tokens in the place of stop strings, and logprobs without tokens."""
        known = super().recordable(fields)
        stop = openai_bodies.stop_sequence(fields)
        others = {name: value for name, value in known.items() if name not in openai_bodies.FIELDS_OF_STOPS}
        if not _given(others.get("logprobs") or {}):
            others.pop("logprobs", None)
        return {**others, **({"stop_reason": stop} if stop is not None else {})}

    @field_validator("finish_reason")
    @classmethod
    def _is_reason(cls, value: str | None) -> str | None:
        if value is not None and not value.strip():
            raise ValueError("must be a reason, such as `stop` or `length`")
        return value

    @field_validator("stop_reason", "matched_stop", mode="before")
    @classmethod
    def _is_stop_string(cls, value: Any) -> Any:
        if isinstance(value, int):
            raise ValueError("must be a stop string: the id of a token is not compared")  # noqa: TRY004  # for pydantic
        return value

    @model_validator(mode="after")
    def _has_one_text(self) -> _Choice:
        if self.text is not None and self.message is not None:
            raise ValueError("has either a `text` or a `message`")
        if self.stop_reason is not None and self.matched_stop is not None:
            raise ValueError("must not have both `stop_reason` and `matched_stop`")
        return self

    def generation(self, usage: _Usage) -> Generation:
        message = self.message or _ChatMessage()
        calls = message.tool_calls
        stop_sequence = self.stop_reason if self.matched_stop is None else self.matched_stop
        return Generation(
            message.content if self.message is not None else self.text,
            self._reason(stop_sequence),
            stop_sequence,
            usage.prompt_tokens,
            usage.completion_tokens,
            None,
            self.logprobs.as_tokens() if self.logprobs is not None else None,
            role=message.role,
            reasoning_content=message.reasoning_content,
            refusal=message.refusal,
            tool_calls=tuple(call.as_call() for call in calls) if calls is not None else None,
            token_ids=tuple(self.token_ids) if self.token_ids is not None else None,
        )

    def _reason(self, stop_sequence: str | None) -> str | None:
        """Return why the text ended, by the names of fmaas."""
        if self.finish_reason is None:
            return None
        choice = {"finish_reason": self.finish_reason, "stop_reason": stop_sequence}
        return openai_bodies.stop_reason(choice, "choices")


class _Usage(_OpenPart):
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None


class OpenAiResponse(_OpenPart):
    """The response of a completion or a chat completion."""

    choices: list[_Choice]
    usage: _Usage | None = None

    @classmethod
    def from_server(cls, response: Any) -> OpenAiResponse:
        """Return a response of a server without the fields that cannot be compared, or that are random."""
        return cls.model_validate(response, context=_OF_SERVER)

    @classmethod
    def recordable(cls, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Leave out the counts of several choices, which are not compared."""
        known = super().recordable(fields)
        if isinstance(known.get("choices"), list) and len(known["choices"]) > 1:
            known.pop("usage", None)
        return known

    @model_validator(mode="after")
    def _can_be_compared(self) -> OpenAiResponse:
        if len(self.choices) > 1 and self.usage is not None and self.usage.model_fields_set:
            raise ValueError("the `usage` of several choices is not compared: remove it")
        if sorted(self._numbers()) != list(range(len(self.choices))):
            raise ValueError(f"the `index` of the choices must be 0 to {len(self.choices) - 1}, each once")
        return self

    def _numbers(self) -> list[int]:
        return [place if each.index is None else each.index for place, each in enumerate(self.choices)]

    def generations(self) -> list[Generation]:
        """Return each choice in the order of their numbers."""
        numbered = sorted(zip(self._numbers(), self.choices, strict=True), key=lambda item: item[0])
        return [choice.generation(self.usage or _Usage()) for _, choice in numbered]


def _kind_of_response(response: Any) -> str:
    is_open = isinstance(response, Mapping) and ("choices" in response or "usage" in response)
    return "openai" if is_open or isinstance(response, OpenAiResponse) else "fmaas"


AnyResponse = Annotated[
    Annotated[FmaasResponse, Tag("fmaas")] | Annotated[OpenAiResponse, Tag("openai")],
    Discriminator(_kind_of_response),
]
