"""The API over gRPC, without TLS, on the loopback interface."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent import futures
from typing import Any, Final

import grpc
import proto
from google.protobuf.message import Message

from tests.servers.tpu.methods import LOCATIONS, OPERATIONS, TPU, Api, Method
from tests.servers.tpu.refusals import ApiError

_ADDRESS: Final = "127.0.0.1"
_THREADS: Final = 64  # a call that hangs occupies one


class GrpcServer:
    """The server of the services `Tpu`, `Operations` and `Locations`. Its end cancels all calls."""

    def __init__(self, api: Api, port: int = 0) -> None:
        self._api = api
        self._server = grpc.server(futures.ThreadPoolExecutor(_THREADS, "tpu-grpc"), options=[("grpc.so_reuseport", 0)])
        for service in (TPU, OPERATIONS, LOCATIONS):
            self._server.add_generic_rpc_handlers((self._service(service),))
        self.port = self._server.add_insecure_port(f"{_ADDRESS}:{port}")
        self._server.start()

    def stop(self) -> None:
        """Close all connections."""
        self._server.stop(grace=0).wait()

    def _service(self, service: str) -> grpc.GenericRpcHandler:
        methods = {name: method for name, method in self._api.methods.items() if method.service == service}
        handlers: dict[str, Any] = {
            name: grpc.unary_unary_rpc_method_handler(
                self._handler(name), _parser(method), lambda response: response.SerializeToString()
            )
            for name, method in methods.items()
        }
        return grpc.method_handlers_generic_handler(service, handlers)

    def _handler(self, name: str) -> Callable[[Message, grpc.ServicerContext], Message]:
        def handle(request: Message, context: grpc.ServicerContext) -> Message:
            try:
                return self._api.call(name, request, _GrpcCall(context))
            except ApiError as error:
                details = error.status()
                details.code = error.code.value[0]
                context.set_trailing_metadata((("grpc-status-details-bin", details.SerializeToString()),))
                context.abort(error.code, error.message)

        return handle


class _GrpcCall:
    """The end of a call, as its context reports it."""

    def __init__(self, context: grpc.ServicerContext) -> None:
        self._is_over = threading.Event()
        if not context.add_callback(self._is_over.set):
            self._is_over.set()

    def wait(self, seconds: float | None) -> bool:
        """Wait for the end of the call; the end of the server cancels all calls."""
        return self._is_over.wait(seconds)


def _parser(method: Method) -> Callable[[bytes], Message]:
    parsed: Any = method.request.pb() if issubclass(method.request, proto.Message) else method.request
    found: Callable[[bytes], Message] = parsed.FromString
    return found
