"""Fixtures for the tests of the reference server: running servers, and clients of both protocols."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import openai
import pytest

from tests.features.inference.functional.reference_server.clients import Stub
from tests.features.inference.servers.reference_server import ReferenceServer, serving, write_checkpoint


@pytest.fixture(scope="session", name="checkpoint")
def _checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model with a context of 32 characters."""
    path = tmp_path_factory.mktemp("short") / "tiny.npz"
    write_checkpoint(path)
    return path


@pytest.fixture(scope="session", name="long_checkpoint")
def _long_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model that can generate texts for minutes."""
    path = tmp_path_factory.mktemp("long") / "tiny.npz"
    write_checkpoint(path, context=100_000)
    return path


@pytest.fixture(scope="session", name="server")
def _server(checkpoint: Path) -> Iterator[ReferenceServer]:
    """Return a server of `checkpoint`, for tests that leave it as it is."""
    with serving(checkpoint, max_new_tokens=30) as found:
        yield found


@pytest.fixture(scope="session", name="slow_server")
def _slow_server(long_checkpoint: Path) -> Iterator[ReferenceServer]:
    """Return a server of `long_checkpoint` with one place, which one request can keep busy."""
    with serving(long_checkpoint, max_batch_size=1) as found:
        yield found


@pytest.fixture(scope="session")
def client(server: ReferenceServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.url, api_key="none", max_retries=0, timeout=30) as found:
        yield found


@pytest.fixture(scope="session")
def stub(server: ReferenceServer) -> Iterator[Stub]:
    with grpc.insecure_channel(server.grpc_address) as channel:
        yield Stub(channel)
