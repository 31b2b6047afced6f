"""The API over gRPC, without TLS, on the loopback interface."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent import futures
from typing import Any, Final

import grpc
from google.protobuf.message import Message

from tests.features.tpu.servers.tpu.methods import SERVICES, Api
from tests.features.tpu.servers.tpu.refusals import ApiError

_ADDRESS: Final = "127.0.0.1"
_THREADS: Final = 64  # a call that hangs occupies one


class GrpcServer:
    """The server of the services `Tpu` and `Operations`. Its end cancels all calls."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._server = grpc.server(futures.ThreadPoolExecutor(_THREADS, "tpu-grpc"), options=[("grpc.so_reuseport", 0)])
        for service in SERVICES:
            handlers: dict[str, Any] = {
                name: grpc.unary_unary_rpc_method_handler(
                    self._handler(name), request.FromString, lambda response: response.SerializeToString()
                )
                for name, request in api.methods(service).items()
            }
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        self.port = self._server.add_insecure_port(f"{_ADDRESS}:0")
        self._server.start()

    def stop(self) -> None:
        """Close all connections."""
        self._server.stop(grace=0).wait()

    def _handler(self, name: str) -> Callable[[Message, grpc.ServicerContext], Message]:
        def handle(request: Message, context: grpc.ServicerContext) -> Message:
            is_over = threading.Event()
            if not context.add_callback(is_over.set):
                is_over.set()
            try:
                return self._api.call(name, request, is_over.wait)
            except ApiError as error:
                details = error.status()
                context.set_trailing_metadata((("grpc-status-details-bin", details.SerializeToString()),))
                context.abort(error.code, error.message)

        return handle
