"""With TLS, requests carry a token of the Application Default Credentials."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.cloud import tpu_v2

from tests.servers import certificates

# gRPC reads the variable with the trusted certificates once per process.
PROGRAM = """
import sys
from toolbox.ground.model.errors import ToolboxError
from toolbox.features.tpu import api_endpoint
from toolbox.features.tpu.api import TpuApi
from toolbox.features.tpu.tpu_states import Location

try:
    with TpuApi(api_endpoint.parse(sys.argv[1]), timeout=2) as api:
        print(api.nodes(Location("my-project", "us-central1-b")))
except ToolboxError as error:
    print(type(error).__name__, error.cause, error)
"""


class _Lists(grpc.GenericRpcHandler):
    """Answers every call with an empty list, and records the headers."""

    def __init__(self) -> None:
        self.headers: list[Mapping[str, Any]] = []

    def service(self, details: Any) -> Any:
        self.headers.append(dict(details.invocation_metadata))
        serialize = tpu_v2.ListNodesResponse.serialize
        return grpc.unary_unary_rpc_method_handler(
            lambda _request, _context: tpu_v2.ListNodesResponse(), response_serializer=serialize
        )


class _NoTokens(BaseHTTPRequestHandler):
    """Refuses to renew a login."""

    def do_POST(self) -> None:
        content = b'{"error": "invalid_grant", "error_description": "Bad Request"}'
        self.send_response(400)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    return certificates.make(tmp_path / "server.pem", "127.0.0.1")


@pytest.fixture
def lists() -> _Lists:
    return _Lists()


@pytest.fixture
def port(certificate: Path, lists: _Lists) -> Iterator[int]:
    server = grpc.server(ThreadPoolExecutor(2), handlers=[lists])
    pair = (certificate.with_suffix(".key").read_bytes(), certificate.read_bytes())
    bound = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
    server.start()
    yield bound
    server.stop(None).wait()


def ask(port: int, certificate: Path, credentials: Path) -> str:
    variables = {
        "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(certificate),
        "GOOGLE_APPLICATION_CREDENTIALS": str(credentials),
    }
    args = [sys.executable, "-W", "ignore", "-c", PROGRAM, f"127.0.0.1:{port}"]
    env = {**os.environ, **variables}
    return subprocess.run(args, env=env, check=True, capture_output=True, text=True, timeout=60).stdout.strip()


def service_account(directory: Path) -> Path:
    key = directory / "account.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "RSA", "-out", key], check=True, capture_output=True)
    file = directory / "account.json"
    file.write_text(
        json.dumps(
            {
                "type": "service_account",
                "project_id": "my-project",
                "private_key_id": "x",
                "private_key": key.read_text(),
                "client_email": "ci@my-project.iam.gserviceaccount.com",
                "client_id": "1",
                "token_uri": "http://127.0.0.1:1/token",
            }
        )
    )
    return file


def federated(directory: Path, token_url: str) -> Path:
    """Return the file of an account of workload identity federation, as workflows have it."""
    (directory / "subject").write_text("token of the workflow")
    file = directory / "federated.json"
    file.write_text(
        json.dumps(
            {
                "type": "external_account",
                "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/g",
                "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
                "token_url": token_url,
                "credential_source": {"file": str(directory / "subject")},
            }
        )
    )
    return file


def test_a_request_carries_a_token_and_its_route(port: int, certificate: Path, lists: _Lists, tmp_path: Path) -> None:
    assert ask(port, certificate, service_account(tmp_path)) == "[]"
    headers = lists.headers[0]
    assert headers["authorization"].startswith("Bearer ")
    assert headers["x-goog-request-params"] == "parent=projects/my-project/locations/us-central1-b"
    assert "gapic/" in headers["x-goog-api-client"]


def test_a_server_with_another_certificate_gets_no_token(port: int, lists: _Lists, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = certificates.make(tmp_path / "other/server.pem", "127.0.0.1")
    assert ask(port, other, service_account(tmp_path)).startswith("ApiUnavailable infrastructure")
    assert lists.headers == []


def test_an_expired_login_is_explained(port: int, certificate: Path, tmp_path: Path) -> None:
    with HTTPServer(("127.0.0.1", 0), _NoTokens) as tokens:
        threading.Thread(target=tokens.serve_forever, daemon=True).start()
        output = ask(port, certificate, federated(tmp_path, f"http://127.0.0.1:{tokens.server_port}/token"))
        tokens.shutdown()
    assert output.startswith("ConfigurationError configuration"), output
    assert "gcloud auth application-default login" in output


def test_a_token_server_that_does_not_answer_is_not_a_configuration_error(
    port: int, certificate: Path, tmp_path: Path
) -> None:
    output = ask(port, certificate, federated(tmp_path, "http://127.0.0.1:1/token"))
    assert output.startswith("InfrastructureError infrastructure Google Cloud gives no token"), output
