"""Fixtures for the tests of the test servers: the server of the TPU API with Google's client library, and of GitHub."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from github import Auth, Github
from github.Repository import Repository
from google.cloud.tpu_v2 import TpuClient, types
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport

from tests.servers import github, tpu
from tests.unit.servers import github_schema

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


@pytest.fixture(name="hub")
def _hub() -> Iterator[github.Server]:
    """Return a server of GitHub's API, whose answers are compared with the published schema at the end of the test."""
    with github.serving() as running:
        running.add_user("alice", "write")
        running.add_user("mallory")
        running.push("feature", {"model.py": "steps = 1\n"}, by="alice")
        yield running
    for recorded in running.requests():
        if recorded.endpoint:
            github_schema.check(recorded)


class Connect:
    """Opens PyGithub's repository for an account, and closes the connections at the end of a test."""

    def __init__(self, hub: github.Server) -> None:
        self._hub = hub
        self.clients: list[Github] = []

    def __call__(self, login: str = "github-actions[bot]", **permissions: str) -> Repository:
        return self.with_token(self._hub.add_token(login, **permissions))

    def with_token(self, token: str) -> Repository:
        """Return the repository for a token, without the pauses and retries of PyGithub."""
        auth = Auth.Token(token)
        client = Github(
            base_url=self._hub.url, auth=auth, retry=None, seconds_between_requests=None, seconds_between_writes=None
        )
        self.clients.append(client)
        return client.get_repo(self._hub.repository.full_name)


@pytest.fixture(name="connect")
def _connect(hub: github.Server) -> Iterator[Connect]:
    connect = Connect(hub)
    yield connect
    for client in connect.clients:
        client.close()
