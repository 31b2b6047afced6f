"""The client of the gRPC service `fmaas.GenerationService`. Only this module of the package imports grpc."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Final

import grpc
import grpc.aio

from toolbox.ground.kit.server_answers import ServerError

from . import fmaas_messages
from .answer_format import Answer, Case, FaultError, Limits, server_error
from .fmaas import generation_pb2 as fmaas
from .server_addresses import GrpcAddress, trusted_certificates

_SERVICE: Final = "/fmaas.GenerationService/"
# A client makes these statuses itself when it loses the connection. A server that sends them does not answer either.
_NO_ANSWER: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED)
# The client also makes statuses that servers use. Only the text tells them apart.
_FROM_CLIENT: Final = re.compile(
    r"Stream removed \(|message larger than max|RST_STREAM|Received http2 header with status"
    r"|metadata size exceeds"
)
# Before this, the library names addresses and its own layers.
_NO_CONNECTION: Final = "Failed to connect to remote host: "


class FmaasClient:
    """Sends requests over one connection.

    Args:
        address: HOST:PORT of the server, or grpcs://HOST:PORT with TLS.
        key: the API key, which is sent to other machines only with TLS.
        ca_file: the certificates of the authorities (PEM) that are trusted; None for those of the system.
    """

    def __init__(self, address: str, limits: Limits, *, key: str | None = None, ca_file: str | None = None) -> None:
        self._limits = limits
        self._metadata = (("authorization", f"Bearer {key}"),) if key else ()
        server = GrpcAddress.parsed(address)
        if key:
            server.check_key()
        options = [
            ("grpc.max_receive_message_length", limits.event_bytes),
            ("grpc.enable_retries", 0),  # a case is sent once
            ("grpc.enable_http_proxy", 0),
            ("grpc.service_config_disable_resolution", 1),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 1000),
            ("grpc.use_local_subchannel_pool", 1),
        ]
        if server.has_tls:
            credentials = grpc.ssl_channel_credentials(trusted_certificates(ca_file))
            self._channel = grpc.aio.secure_channel(server.target, credentials, options=options)
        else:
            self._channel = grpc.aio.insecure_channel(server.target, options=options)

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()

    async def check_ready(self, seconds: float) -> None:
        """Ask for the description of the model. Raise FaultError if it does not come in time."""
        try:
            await self._unary("ModelInfo")(b"", timeout=seconds, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            raise FaultError(f"{error.code().name}: {_details(error)}") from error

    async def send(self, case: Case, answer: Answer) -> None:
        """Send a case, and fill the answer. Raise FaultError, or InvalidRequestError before anything is sent."""
        try:
            if case.protocol == "tokenize":
                tokenize = fmaas_messages.parsed(case.request, fmaas.BatchedTokenizeRequest).SerializeToString()
                content = await self._call("Tokenize", tokenize)
                answer.response = fmaas_messages.as_json(fmaas_messages.decoded(content, fmaas.BatchedTokenizeResponse))
            elif case.protocol == "model_info":
                question = fmaas_messages.parsed(case.request, fmaas.ModelInfoRequest).SerializeToString()
                content = await self._call("ModelInfo", question)
                answer.response = fmaas_messages.as_json(fmaas_messages.decoded(content, fmaas.ModelInfoResponse))
            elif answer.stream:
                await self._stream(fmaas_messages.parsed(case.request, fmaas.BatchedGenerationRequest), answer)
            else:
                await self._generate(fmaas_messages.parsed(case.request, fmaas.BatchedGenerationRequest), answer)
        except grpc.aio.AioRpcError as error:
            answer.error = _server_error(error)

    async def _call(self, method: str, content: bytes) -> bytes:
        return await self._unary(method)(content, metadata=self._metadata)

    def _unary(self, method: str) -> grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]:
        return self._channel.unary_unary(f"{_SERVICE}{method}")

    async def _generate(self, batch: fmaas.BatchedGenerationRequest, answer: Answer) -> None:
        content = await self._call("Generate", batch.SerializeToString())
        response = fmaas_messages.decoded(content, fmaas.BatchedGenerationResponse)
        answer.response = fmaas_messages.as_json(response)
        reader = fmaas_messages.ResponseReader(batch.params.response)
        answer.generations = [reader.whole(single) for single in response.responses]

    async def _stream(self, batch: fmaas.BatchedGenerationRequest, answer: Answer) -> None:
        reader = fmaas_messages.ResponseReader(batch.params.response)
        received = 0
        for index, single in enumerate(fmaas_messages.single_requests(batch)):
            async for content in self._messages(single):
                received += len(content)
                if received > self._limits.body_bytes:
                    raise FaultError(f"the stream is larger than {self._limits.body_bytes} bytes")
                message = fmaas_messages.decoded(content, fmaas.GenerationResponse)
                answer.add(index, reader.part(message), fmaas_messages.as_json(message))
        answer.end_stream()

    async def _messages(self, single: fmaas.SingleGenerationRequest) -> AsyncIterator[bytes]:
        method: grpc.aio.UnaryStreamMultiCallable[bytes, bytes]
        method = self._channel.unary_stream(f"{_SERVICE}GenerateStream")
        call = method(single.SerializeToString(), metadata=self._metadata)
        try:
            async for content in call:
                yield content
        finally:
            call.cancel()


def _server_error(error: grpc.aio.AioRpcError) -> ServerError:
    """Return the error that the server has sent. Raise FaultError if it is one of the client, or of the connection."""
    code, details = error.code(), _details(error)
    if code in _NO_ANSWER or _FROM_CLIENT.search(details):
        raise FaultError(f"{code.name}: {details}") from error
    return server_error(code.name, details)


def _details(error: grpc.aio.AioRpcError) -> str:
    details = error.details() or ""
    _, found, reason = details.partition(_NO_CONNECTION)
    return f"no connection to the server: {reason}" if found else details
