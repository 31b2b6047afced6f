"""A test server of GitHub's API that the tests of a module share, and its pull request."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers import github
from toolbox.ci import github_api, run_comment
from toolbox.ci.github_api import GitHubApi


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[github.Server]:
    """Yield a server whose member alice has opened the pull request 1. Clients make no pauses."""
    monkeypatch.setattr(github_api, "_WRITE_PAUSE", 0.0)
    for module in (github_api, run_comment):
        monkeypatch.setattr(module, "_FIRST_PAUSE", 0.01)
    with github.serving() as running:
        running.add_user("alice", "write")
        running.push("topic", {"model.py": "steps = 1"}, by="alice")
        running.open_pull_request("topic", by="alice")
        yield running


@pytest.fixture
def api(server: github.Server) -> GitHubApi:
    """Return a client with the token of a job that may write comments and statuses."""
    return GitHubApi("owner/name", server.add_token(pull_requests="write", statuses="write"), server.url)
