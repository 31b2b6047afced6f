"""Fixtures for the tests of the test server: the server of the TPU API, and Google's client library as its client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from google.cloud.tpu_v2 import TpuClient, types
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport

from tests.features.tpu.servers import tpu

PARENT = "projects/p/locations/us-central1-a"


@pytest.fixture(name="server")
def _server(tmp_path: Path) -> Iterator[tpu.Server]:
    """Return a server without workers, whose clock only moves when a test moves it."""
    with tpu.serving(tmp_path, has_workers=False, is_frozen=True) as running:
        yield running


@pytest.fixture(name="client")
def _client(server: tpu.Server) -> Iterator[TpuClient]:
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield TpuClient(transport=TpuGrpcTransport(channel=channel))


@pytest.fixture(name="node")
def _node() -> types.Node:
    """Return the description of a node with one worker."""
    return types.Node(accelerator_type="v5litepod-8", runtime_version="v2-alpha-tpuv5-lite")
