"""A test server of GitHub's API, and clients of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.features.ci.fakes import github_pull_request
from tests.features.ci.servers import github
from toolbox.features.ci.github.github_api import GitHubApi


@pytest.fixture
def server() -> Iterator[github.Server]:
    """Yield a server whose member alice has opened the pull request 1."""
    with github_pull_request.serving() as running:
        yield running


@pytest.fixture
def api(server: github.Server) -> GitHubApi:
    """Return a client with the token of a job that may write comments and statuses."""
    token = server.add_token(contents="read", pull_requests="write", statuses="write")
    return GitHubApi("owner/name", token, server.url)
