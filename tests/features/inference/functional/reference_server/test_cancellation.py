"""A client that goes away frees its place in the batch."""

from __future__ import annotations

import json
import socket

import grpc
import pytest

from tests.features.inference.functional.reference_server.clients import Stub, post
from tests.features.inference.servers.reference_server import ReferenceServer
from toolbox.features.inference.client.fmaas import generation_pb2 as fmaas

COMPLETIONS = "/v1/completions"
LONG = {"model": "tiny", "prompt": "a", "max_tokens": 90_000}
SHORT = {"model": "tiny", "prompt": "b", "max_tokens": 2}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("prompt", ["a", "a" * 90_000])
def test_a_disconnected_http_client_frees_its_place(slow_server: ReferenceServer, stream: bool, prompt: str) -> None:
    body = json.dumps(LONG | {"prompt": prompt, "stream": stream}).encode()
    head = f"POST {COMPLETIONS} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", slow_server.http_port)) as connection:
        connection.sendall(head + body)
        if stream:
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")
    assert post(slow_server, COMPLETIONS, json.dumps(SHORT).encode())[0] == 200


def test_the_unread_part_of_a_stream_is_dropped_with_its_connection(slow_server: ReferenceServer) -> None:
    body = json.dumps(LONG | {"max_tokens": 3000, "stream": True}).encode()
    head = f"POST {COMPLETIONS} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", slow_server.http_port))
        connection.sendall(head + body)
        connection.recv(100)
        assert post(slow_server, COMPLETIONS, json.dumps(SHORT).encode())[0] == 200  # waits for the end of the stream
    assert post(slow_server, COMPLETIONS, json.dumps(SHORT).encode())[0] == 200
    assert slow_server.errors.read_text() == ""


@pytest.mark.parametrize("stream", [True, False])
def test_a_cancelled_call_frees_its_place(slow_server: ReferenceServer, stream: bool) -> None:
    request = fmaas.GenerationRequest(text="a")
    parameters = fmaas.Parameters(stopping=fmaas.StoppingCriteria(max_new_tokens=90_000))
    with grpc.insecure_channel(slow_server.grpc_address) as channel:
        stub = Stub(channel)
        if stream:
            call = stub.GenerateStream(fmaas.SingleGenerationRequest(request=request, params=parameters))
            next(call)
        else:
            call = stub.Generate.future(fmaas.BatchedGenerationRequest(requests=[request], params=parameters))
        call.cancel()
        assert stub.Generate(fmaas.BatchedGenerationRequest(requests=[request])).responses


def test_a_deadline_of_a_client_frees_its_place(slow_server: ReferenceServer) -> None:
    parameters = fmaas.Parameters(stopping=fmaas.StoppingCriteria(max_new_tokens=90_000))
    batch = fmaas.BatchedGenerationRequest(requests=[fmaas.GenerationRequest(text="a")])
    with grpc.insecure_channel(slow_server.grpc_address) as channel:
        with pytest.raises(grpc.RpcError) as late:
            Stub(channel).Generate(
                fmaas.BatchedGenerationRequest(requests=batch.requests, params=parameters), timeout=0.2
            )
        assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert Stub(channel).Generate(batch).responses
