"""A gRPC server of `fmaas.GenerationService` whose answers are the bytes or errors of a script."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc

Context = grpc.ServicerContext
# Gets the bytes of the request, and the context, by which it can also send an error.
Script = Callable[[bytes, Context], Iterable[bytes]]


def no_answer(content: bytes, context: Context) -> Iterable[bytes]:
    """Answer nothing, as the script of a method that a test does not use."""
    del content
    context.abort(grpc.StatusCode.UNIMPLEMENTED, "the script has no such method")


class GrpcServer:
    """A running server.

    Args:
        unary: answers all methods but GenerateStream, with its first message.
        stream: answers GenerateStream.
        certificate: a file of `certificates.make`, for a server with TLS.
        port: 0 for a free port.
    """

    def __init__(
        self,
        unary: Script = no_answer,
        stream: Script = no_answer,
        *,
        port: int = 0,
        compression: grpc.Compression | None = None,
        certificate: Path | None = None,
    ) -> None:
        self.stopping = threading.Event()  # a script that waits ends when this is set
        self._executor = futures.ThreadPoolExecutor(8)
        self._server = grpc.server(self._executor, options=[("grpc.so_reuseport", 0)], compression=compression)
        method: grpc.RpcMethodHandler[Any, Any] = grpc.unary_unary_rpc_method_handler(
            lambda content, context: next(iter(unary(content, context)))
        )
        stream_method: grpc.RpcMethodHandler[Any, Any] = grpc.unary_stream_rpc_method_handler(
            lambda content, context: iter(stream(content, context))
        )
        methods = dict.fromkeys(("Generate", "Tokenize", "ModelInfo"), method) | {"GenerateStream": stream_method}
        self._server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler("fmaas.GenerationService", methods)]
        )
        if certificate:
            pair = (certificate.with_suffix(".key").read_bytes(), certificate.read_bytes())
            self.port = self._server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
        else:
            self.port = self._server.add_insecure_port(f"127.0.0.1:{port}")
        self.address = f"127.0.0.1:{self.port}"
        self._server.start()

    def stop(self) -> None:
        """End the server and all its calls."""
        self.stopping.set()
        self._server.stop(None).wait()
        self._executor.shutdown()


@contextlib.contextmanager
def serving(
    unary: Script = no_answer,
    stream: Script = no_answer,
    *,
    compression: grpc.Compression | None = None,
    certificate: Path | None = None,
) -> Iterator[GrpcServer]:
    """Run a server during the block."""
    server = GrpcServer(unary, stream, compression=compression, certificate=certificate)
    try:
        yield server
    finally:
        server.stop()


def answering(*messages: bytes) -> Script:
    """Return a script that sends the same messages to everyone."""

    def script(content: bytes, context: Context) -> Iterable[bytes]:
        del content, context
        return messages

    return script
