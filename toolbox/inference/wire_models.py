"""The requests and responses of case files, as pydantic models.

The fmaas messages have the field names of TGIS's `proto/generation.proto`, in snake_case or camelCase, also mixed: the
JSON form of protobuf accepts both. Only the fields of the fmaas requests are checked here, because servers with the API
of OpenAI have fields of their own. Of a response, only the fields that can be compared are read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator
from pydantic.alias_generators import to_camel

from toolbox.inference_client import openai_bodies
from toolbox.model import generations
from toolbox.model.generations import Generation, Token
from toolbox.model.text import abbreviated

MOST_REQUESTS: Final = 1000  # in a batch


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


Texts = Annotated[list[Text], Field(max_length=MOST_REQUESTS)]


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


class TopToken(Message):
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
    top_tokens: list[TopToken] = []

    def token(self) -> Token:
        """Return the token."""
        return Token(self.text, self.id, self.logprob, self.rank, tuple(top.token() for top in self.top_tokens))


class GenerationResponse(Message):
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
        return generations.from_record(self)


class Offset(Message):
    """The characters of a token in the text."""

    start: Count = 0
    end: Count = 0


class TokenizeResponse(Message):
    """The tokens of one text."""

    token_count: Count
    tokens: list[str] | None = None
    offsets: list[Offset] | None = None

    def generation(self) -> Generation:
        """Return the tokens as the input tokens of an answer without a text."""
        tokens = tuple(map(Token, self.tokens)) if self.tokens is not None else None
        return Generation(input_token_count=self.token_count, input_tokens=tokens)


class TokenizedText(TokenizeResponse):
    """The tokens of one text as a server sends them. Protobuf leaves out the count 0."""

    token_count: Count = 0


class TokenizedBatch(Message):
    """The response of a server to a request for tokens."""

    responses: list[TokenizedText] = []


def _kind_of_answer(answer: Any) -> str:
    is_tokenized = isinstance(answer, Mapping) and answer.keys() & {"token_count", "tokenCount"}
    return "tokenize" if is_tokenized or isinstance(answer, TokenizeResponse) else "generation"


class FmaasResponse(Message):
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
    """A part of a response of OpenAI's API. Fields that are not compared are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)


class _ChatToken(_OpenPart):
    token: str
    logprob: Logprob | None = None
    top_logprobs: list[_ChatToken] = []

    def as_token(self) -> Token:
        return Token(self.token, None, self.logprob, None, tuple(top.as_token() for top in self.top_logprobs))


class _Logprobs(_OpenPart):
    """The logprobs of a completion (`tokens` ...) or of a chat completion (`content`)."""

    tokens: list[str] | None = None
    token_logprobs: list[Logprob | None] | None = None
    top_logprobs: list[dict[str, Logprob] | None] | None = None
    content: list[_ChatToken] | None = None

    @model_validator(mode="after")
    def _lists_are_equally_long(self) -> _Logprobs:
        lists: list[Sequence[object]] = [
            each for each in (self.tokens, self.token_logprobs, self.top_logprobs) if each is not None
        ]
        if len({len(each) for each in lists}) > 1:
            raise ValueError("`tokens`, `token_logprobs` and `top_logprobs` must have the same number of items")
        return self

    def as_tokens(self) -> tuple[Token, ...] | None:
        if self.content is not None:
            return tuple(token.as_token() for token in self.content)
        if self.tokens is None:
            return None
        logprobs = self.token_logprobs or [None] * len(self.tokens)
        tops = self.top_logprobs or [None] * len(self.tokens)
        return tuple(
            Token(text, None, logprob, None, tuple(Token(other, None, value) for other, value in (top or {}).items()))
            for text, logprob, top in zip(self.tokens, logprobs, tops, strict=True)
        )


class _ChatMessage(_OpenPart):
    content: str | None = None


class _Choice(_OpenPart):
    index: Count | None = None
    text: str | None = None
    message: _ChatMessage | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    matched_stop: str | int | None = None
    logprobs: _Logprobs | None = None

    @property
    def stop_sequence(self) -> str | None:
        """The stop string that ended the text. In its place, servers also write the id of a token."""
        return next((stop for stop in (self.stop_reason, self.matched_stop) if isinstance(stop, str)), None)

    @property
    def reason(self) -> str | None:
        """Why the text ended, by the names of fmaas."""
        if self.finish_reason is None:
            return None
        choice = {"finish_reason": self.finish_reason, "stop_reason": self.stop_sequence}
        return openai_bodies.stop_reason(choice, "choices")


class _Usage(_OpenPart):
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None


class OpenAiResponse(_OpenPart):
    """The response of a completion or a chat completion."""

    choices: list[_Choice]
    usage: _Usage | None = None

    def generations(self) -> list[Generation]:
        """Return each choice in the order of their numbers.

        The counts of tokens belong to all choices together, so several choices have none.
        """
        numbered = sorted(enumerate(self.choices), key=lambda item: item[0] if item[1].index is None else item[1].index)
        usage = self.usage if self.usage is not None and len(self.choices) == 1 else _Usage()
        return [
            Generation(
                choice.message.content if choice.message is not None else choice.text,
                choice.reason,
                choice.stop_sequence,
                usage.prompt_tokens,
                usage.completion_tokens,
                None,
                choice.logprobs.as_tokens() if choice.logprobs is not None else None,
            )
            for _, choice in numbered
        ]


def _kind_of_response(response: Any) -> str:
    is_open = isinstance(response, OpenAiResponse) or (isinstance(response, Mapping) and "choices" in response)
    return "openai" if is_open else "fmaas"


AnyResponse = Annotated[
    Annotated[FmaasResponse, Tag("fmaas")] | Annotated[OpenAiResponse, Tag("openai")],
    Discriminator(_kind_of_response),
]
