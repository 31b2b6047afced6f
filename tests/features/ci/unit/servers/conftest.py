"""Fixtures for the tests of the test servers: a server of GitHub's API, and PyGithub as its client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from github import Auth, Github
from github.Repository import Repository

from tests.features.ci.servers import github
from tests.features.ci.unit.servers import github_schema


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
