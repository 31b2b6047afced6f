"""
The gRPC service `fmaas.GenerationService` of TGIS.

Where the definition leaves a choice, this server does as TGIS: parameters of sampling are ignored with the method
GREEDY; a text ends with its stop sequence, unless the request excludes the stop sequence; the first message of a
stream has the number of input tokens, the second has the input tokens if they are requested, and each further message
has a token. Differences from TGIS: a length penalty changes nothing, because the model has no token for the end of a
text; a request for an unknown model is refused; logprobs and ranks are those of the model, before any penalty and
limit of the sampling.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from toolbox.features.inference.client.fmaas import generation_pb2 as fmaas

from .engine import Engine
from .generation import (
    Detail,
    EngineError,
    Event,
    Generated,
    Options,
    OverloadedError,
    Request,
    RequestError,
    Sampling,
    Started,
    StoppingError,
    quoted,
)
from .visible_text import VisibleText

DEFAULT_NEW_TOKENS = 20
MAX_TOP_TOKENS = 5
LOWEST_TEMPERATURE = 0.05
# The names of the protocol for the options that have other names there.
NAMES: Final[Mapping[str, str]] = {"top_tokens": "top_n_tokens", "prompt": "text"}

In = TypeVar("In", bound=Message)
Context = grpc.aio.ServicerContext[Any, Any]


class UnknownModelError(Exception):
    """The request is for another model than the server has."""


class Service:
    """The methods of the service, each from a message to a message or an iterator of messages."""

    def __init__(self, engine: Engine, model: str) -> None:
        self._engine = engine
        self._vocabulary = engine.vocabulary
        self._model = model

    async def generate(self, message: fmaas.BatchedGenerationRequest) -> fmaas.BatchedGenerationResponse:
        """Continue each text of a batch."""
        self._check_model(message.model_id, message)
        self._engine.check_room(len(message.requests))  # because preparing very many requests takes long
        texts = [single.text for single in message.requests]
        replies = [_Reply(self._request(text, message.params), text, message.params, self._engine) for text in texts]
        responses = [reply.beginning() for reply in replies]
        async with self._engine.generate([reply.request for reply in replies]) as events:
            async for index, event in events:
                part, whole = replies[index].part(event), responses[index]
                text = whole.text + part.text
                whole.MergeFrom(part)  # adds lists, and replaces all else
                whole.text = text
        return fmaas.BatchedGenerationResponse(responses=responses)

    async def generate_stream(self, message: fmaas.SingleGenerationRequest) -> AsyncIterator[fmaas.GenerationResponse]:
        """Continue a text, and yield the parts of the response."""
        self._check_model(message.model_id, message)
        if not message.HasField("request"):
            raise RequestError("request", "is missing", tgis_message="missing request")
        text = message.request.text
        reply = _Reply(self._request(text, message.params), text, message.params, self._engine)
        async with self._engine.generate([reply.request]) as events:
            yield reply.beginning()
            async for _, event in events:
                part = reply.part(event)
                if event.is_last:
                    part.seed = reply.seed
                if part.ByteSize():
                    yield part

    async def tokenize(self, message: fmaas.BatchedTokenizeRequest) -> fmaas.BatchedTokenizeResponse:
        """Split each text of a batch into its characters."""
        self._check_model(message.model_id)
        # In a thread, because very long texts take seconds, and other requests should not wait for them.
        return await asyncio.to_thread(self._tokenized, message)

    def _tokenized(self, message: fmaas.BatchedTokenizeRequest) -> fmaas.BatchedTokenizeResponse:
        found = fmaas.BatchedTokenizeResponse()
        for request in message.requests:
            tokens = self._vocabulary.encode(request.text)
            start = max(0, len(tokens) - message.truncate_input_tokens) if message.truncate_input_tokens else 0
            single = found.responses.add(token_count=len(tokens) - start)
            if message.return_tokens:
                single.tokens.extend(request.text[start:])
            if message.return_offsets:
                for place in range(start, len(tokens)):
                    single.offsets.add(start=place, end=place + 1)
        return found

    async def model_info(self, message: fmaas.ModelInfoRequest) -> fmaas.ModelInfoResponse:
        """Describe the model and the limits of the server."""
        self._check_model(message.model_id)
        return fmaas.ModelInfoResponse(
            model_kind=fmaas.ModelInfoResponse.DECODER_ONLY,
            max_sequence_length=self._engine.limits.max_sequence_length,
            max_new_tokens=self._engine.limits.max_new_tokens,
        )

    def _check_model(
        self, model: str, message: fmaas.BatchedGenerationRequest | fmaas.SingleGenerationRequest | None = None
    ) -> None:
        if model not in ("", self._model):
            raise UnknownModelError(f"the server has the model {self._model!a}, and not {quoted(model)}")
        if message and message.prefix_id:
            raise RequestError("prefix_id", f"{quoted(message.prefix_id)} is unknown: the server has no prefixes")

    def _request(self, text: str, parameters: fmaas.Parameters) -> Request:
        limits = self._engine.limits
        options = _options(parameters, default_length=min(DEFAULT_NEW_TOKENS, limits.max_new_tokens))
        return limits.prepare(self._vocabulary.encode(text), options)


def _options(parameters: fmaas.Parameters, *, default_length: int) -> Options:
    """Translate the parameters of a request, in which 0 stands for the default. Raise RequestError as `check` does."""
    stopping, shown = parameters.stopping, parameters.response
    shows_tokens = shown.generated_tokens or shown.input_tokens
    if (shown.token_logprobs or shown.token_ranks or shown.top_n_tokens) and not shows_tokens:
        message = "must request input and/or generated tokens to request extra token detail"
        raise RequestError("response", message, tgis_message=message)
    if shown.top_n_tokens > MAX_TOP_TOKENS:
        raise RequestError("top_n_tokens", f"must be <= {MAX_TOP_TOKENS}")
    penalty = parameters.decoding.length_penalty
    if parameters.decoding.HasField("length_penalty") and not 1 <= penalty.decay_factor <= 10:
        raise RequestError("length_penalty", "must be >= 1.0 and <= 10.0")
    sampling, drawn = None, parameters.sampling
    if parameters.method == fmaas.SAMPLE:
        if not (drawn.temperature == 0 or drawn.temperature >= LOWEST_TEMPERATURE):  # refuses NaN, too
            raise RequestError("temperature", f"must be >= {LOWEST_TEMPERATURE}")
        sampling = Sampling(
            seed=drawn.seed if drawn.HasField("seed") else secrets.randbits(32),
            temperature=drawn.temperature or 1.0,
            top_k=drawn.top_k,
            top_p=drawn.top_p or 1.0,
            typical_p=drawn.typical_p or 1.0,
        )
    elif parameters.method != fmaas.GREEDY:
        raise RequestError("method", f"{parameters.method} is unknown")
    return Options(
        max_new_tokens=stopping.max_new_tokens or max(default_length, 1),
        min_new_tokens=stopping.min_new_tokens,
        time_limit=stopping.time_limit_millis / 1000 if stopping.time_limit_millis else None,
        stop_sequences=tuple(stopping.stop_sequences),
        sampling=sampling,
        repetition_penalty=parameters.decoding.repetition_penalty or 1.0,
        truncate_input_tokens=parameters.truncate_input_tokens,
        details=shown.generated_tokens,
        input_details=shown.input_tokens,
        top_tokens=shown.top_n_tokens,
    )


class _Reply:
    """The parts of the response to one request."""

    def __init__(self, request: Request, text: str, parameters: fmaas.Parameters, engine: Engine) -> None:
        self.request = request
        self.seed = request.options.sampling.seed if request.options.sampling else 0
        self._text = text
        self._shown = parameters.response
        self._characters = engine.vocabulary.characters
        self._count = 0
        stopping = parameters.stopping
        included = stopping.include_stop_sequence or not stopping.HasField("include_stop_sequence")
        self._visible = VisibleText(() if included else request.options.stop_sequences, engine.vocabulary)

    def beginning(self) -> fmaas.GenerationResponse:
        """Return what is known before the model has read the request."""
        return fmaas.GenerationResponse(
            input_token_count=len(self.request.tokens),
            text=self._text if self._shown.input_text else "",
            seed=self.seed,
        )

    def part(self, event: Event) -> fmaas.GenerationResponse:
        """Return what an event adds to the response."""
        if isinstance(event, Started):
            details = zip(self.request.tokens, event.input_details, strict=False)
            return fmaas.GenerationResponse(input_tokens=[self._token(token, detail) for token, detail in details])
        if isinstance(event, Generated):
            self._count += 1
            return fmaas.GenerationResponse(
                generated_token_count=self._count,
                text="".join(self._characters[visible.token] for visible in self._visible.add(event)),
                tokens=[self._token(event.token, event.detail)] if self._shown.generated_tokens else (),
                stop_reason=event.stop_reason.name if event.stop_reason else None,
                stop_sequence=event.stop_sequence,
            )
        return fmaas.GenerationResponse(generated_token_count=self._count, stop_reason=fmaas.TIME_LIMIT)

    def _token(self, token: int, detail: Detail | None) -> fmaas.TokenInfo:
        info = fmaas.TokenInfo(text=self._characters[token])
        if self._shown.token_logprobs:
            info.logprob = detail.logprob if detail else math.nan
        if detail:
            info.rank = detail.rank if self._shown.token_ranks else 0
            for other, logprob in detail.top:
                info.top_tokens.add(
                    text=self._characters[other], logprob=logprob if self._shown.token_logprobs else 0.0
                )
        return info


def handler(service: Service) -> grpc.GenericRpcHandler:
    """Return the handler that makes a server offer the service."""
    # Without a deserializer, a message that cannot be decoded would be reported as an internal error.
    unary = grpc.unary_unary_rpc_method_handler
    methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "Generate": unary(_unary(service.generate, fmaas.BatchedGenerationRequest)),
        "GenerateStream": grpc.unary_stream_rpc_method_handler(_stream(service.generate_stream)),
        "Tokenize": unary(_unary(service.tokenize, fmaas.BatchedTokenizeRequest)),
        "ModelInfo": unary(_unary(service.model_info, fmaas.ModelInfoRequest)),
    }
    return grpc.method_handlers_generic_handler("fmaas.GenerationService", methods)


def _unary(
    method: Callable[[In], Awaitable[Message]], message: type[In]
) -> Callable[[bytes, Context], Awaitable[bytes]]:
    async def call(request: bytes, context: Context) -> bytes:
        try:
            return (await method(_decode(message, request))).SerializeToString()
        except tuple(STATUS_CODES) as error:
            await _abort(context, error)
            raise  # not reached

    return call


def _stream(
    method: Callable[[fmaas.SingleGenerationRequest], AsyncIterator[Message]],
) -> Callable[[bytes, Context], AsyncIterator[bytes]]:
    async def call(request: bytes, context: Context) -> AsyncIterator[bytes]:
        try:
            async for part in method(_decode(fmaas.SingleGenerationRequest, request)):
                yield part.SerializeToString()
        except tuple(STATUS_CODES) as error:
            await _abort(context, error)

    return call


STATUS_CODES: Final[Mapping[type[Exception], grpc.StatusCode]] = {
    DecodeError: grpc.StatusCode.INVALID_ARGUMENT,
    RequestError: grpc.StatusCode.INVALID_ARGUMENT,
    UnknownModelError: grpc.StatusCode.NOT_FOUND,
    OverloadedError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    StoppingError: grpc.StatusCode.UNAVAILABLE,
    EngineError: grpc.StatusCode.INTERNAL,
}


def _decode(message: type[In], content: bytes) -> In:
    decoded = message()
    decoded.ParseFromString(content)
    return decoded


async def _abort(context: Context, error: Exception) -> None:
    text = str(error)
    if isinstance(error, RequestError):
        text = error.tgis_message or f"{NAMES.get(error.parameter, error.parameter)} {error.problem}"
    elif isinstance(error, DecodeError):
        text = f"the message cannot be decoded: {error}"
    code = next(code for kind, code in STATUS_CODES.items() if isinstance(error, kind))
    await context.abort(code, text)
