"""A test server of GitHub's API that the tests of a module share, and its pull requests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.features.ci.fakes import github_pull_request
from tests.features.ci.servers import github
from toolbox.features.ci.github.github_api import GitHubApi
from toolbox.features.ci.github.pull_requests import GitHubPullRequests


@pytest.fixture
def server() -> Iterator[github.Server]:
    """Yield a server whose member alice has opened the pull request 1."""
    with github_pull_request.serving() as running:
        yield running


@pytest.fixture
def prs(server: github.Server) -> GitHubPullRequests:
    """Return the pull requests, with the token of a job that may write comments and statuses."""
    token = server.add_token(pull_requests="write", statuses="write")
    return GitHubPullRequests(GitHubApi("owner/name", token, server.url))
