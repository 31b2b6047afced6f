"""The scripted HTTP server of the tests ends its connections, whatever its clients do."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

import pytest

from tests.features.inference.servers.inference import http_server


@pytest.mark.parametrize("sent", [b"POST / HTTP/1.1\r\n", b"POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\n", b"{}"])
def test_a_client_that_ends_within_its_request_gets_no_answer(sent: bytes) -> None:
    with http_server.serving(http_server.answering(b"never")) as server:
        address = urlsplit(server.url)
        with socket.create_connection((address.hostname, address.port), timeout=20) as client:
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)
            assert client.recv(1) == b""
    assert server.requests == []
