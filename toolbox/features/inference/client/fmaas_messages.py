"""Makes messages of `fmaas.GenerationService` from the requests of cases, and normalises its responses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message

from toolbox.ground.kit.server_answers import Generation, Token

from .answer_format import FaultError, InvalidRequestError
from .fmaas import generation_pb2 as fmaas

M = TypeVar("M", bound=Message)


def parsed(request: Mapping[str, Any], kind: type[M]) -> M:
    """Return the message of a request, whose keys are in snake_case or camelCase. Raise InvalidRequestError."""
    try:
        message: M = json_format.ParseDict(dict(request), kind())
    except (json_format.ParseError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InvalidRequestError(" ".join(str(error).split())) from error
    return message


def single_requests(batch: fmaas.BatchedGenerationRequest) -> Sequence[fmaas.SingleGenerationRequest]:
    """Return a request for a stream for each text of a batch."""
    singles = []
    for request in batch.requests:
        single = fmaas.SingleGenerationRequest(model_id=batch.model_id, request=request)
        if batch.HasField("prefix_id"):
            single.prefix_id = batch.prefix_id
        if batch.HasField("params"):
            single.params.CopyFrom(batch.params)
        singles.append(single)
    return singles


def decoded(content: bytes, kind: type[M]) -> M:
    """Return the message that a server has sent. Raise FaultError."""
    message = kind()
    try:
        message.ParseFromString(content)
    except DecodeError as error:
        raise FaultError(f"the answer is not a message {kind.DESCRIPTOR.name}: {error}") from error
    return message


def as_json(message: Message) -> dict[str, Any]:
    """Return a message in protobuf's JSON format, with keys in camelCase."""
    content: dict[str, Any] = json_format.MessageToDict(message)
    return content


@dataclass(frozen=True)
class ResponseReader:
    """Normalises responses. Fields that the request did not ask for become None, where the message has 0.

    Args:
        asked: the options in the request.
    """

    asked: fmaas.ResponseOptions

    def whole(self, response: fmaas.GenerationResponse) -> Generation:
        """Return the generation in a response that is not streamed."""
        return Generation(
            text=response.text,
            stop_reason=_stop_reason(response),
            input_token_count=response.input_token_count,
            generated_token_count=response.generated_token_count,
            seed=response.seed or None,
            tokens=tuple(map(self._token, response.tokens)) if self.asked.generated_tokens else None,
            input_tokens=tuple(map(self._token, response.input_tokens)) if self.asked.input_tokens else None,
            stop_sequence=response.stop_sequence or None,
        )

    def part(self, response: fmaas.GenerationResponse) -> Generation:
        """Return what a message of a stream adds. Fields with the value 0 are absent.

        The count is that of all tokens so far, so 0 stays 0: a count that falls to 0 is a mistake of the server.
        """
        return Generation(
            text=response.text,
            stop_reason=_stop_reason(response),
            input_token_count=response.input_token_count or None,
            generated_token_count=response.generated_token_count,
            seed=response.seed or None,
            tokens=tuple(map(self._token, response.tokens)) or None,
            input_tokens=tuple(map(self._token, response.input_tokens)) or None,
            stop_sequence=response.stop_sequence or None,
        )

    def _token(self, token: fmaas.TokenInfo) -> Token:
        return Token(
            token.text,
            logprob=self._logprob(token.logprob),
            rank=token.rank or None,
            top=tuple(Token(top.text, logprob=self._logprob(top.logprob)) for top in token.top_tokens)
            if self.asked.top_n_tokens
            else (),
        )

    def _logprob(self, value: float) -> float | None:
        return value if self.asked.token_logprobs and math.isfinite(value) else None


def _stop_reason(response: fmaas.GenerationResponse) -> str:
    try:
        return fmaas.StopReason.Name(response.stop_reason)
    except ValueError as error:
        raise FaultError(f"the answer has an unknown stop reason: {response.stop_reason}") from error
