"""Clients of the reference server: one for gRPC, as grpcio-tools would generate it, and one for raw HTTP."""

from __future__ import annotations

import http.client
import json
from typing import Any

import grpc

from tests.features.inference.servers.reference_server import ReferenceServer
from toolbox.features.inference.client.fmaas import generation_pb2 as fmaas


class Stub:
    """The methods of the service."""

    Generate: Any
    GenerateStream: Any
    Tokenize: Any
    ModelInfo: Any

    def __init__(self, channel: grpc.Channel) -> None:
        for method in fmaas.DESCRIPTOR.services_by_name["GenerationService"].methods:
            connect = channel.unary_stream if method.server_streaming else channel.unary_unary
            callable_ = connect(
                f"/fmaas.GenerationService/{method.name}",
                request_serializer=getattr(fmaas, method.input_type.name).SerializeToString,
                response_deserializer=getattr(fmaas, method.output_type.name).FromString,
            )
            setattr(self, method.name, callable_)


def post(server: ReferenceServer, path: str, body: bytes, method: str = "POST") -> tuple[int, Any]:
    """Send a request, and return the status and the content of the response."""
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
    try:
        connection.request(method, path, body)
        response = connection.getresponse()
        content = response.read()
        is_json = response.headers["Content-Type"] == "application/json"
        return response.status, json.loads(content) if is_json else content
    finally:
        connection.close()
