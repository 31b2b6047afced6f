"""A test server of GitLab's API, and a client of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.features.ci.servers import gitlab
from toolbox.features.ci.gitlab.gitlab_api import GitLabApi


@pytest.fixture
def server() -> Iterator[gitlab.Server]:
    """Yield a server whose member alice has opened the merge request 1."""
    with gitlab.serving() as running:
        running.add_user("alice", gitlab.DEVELOPER)
        running.push("topic", {"model.py": "steps = 1"}, by="alice")
        running.open_merge_request("topic", by="alice")
        yield running


@pytest.fixture
def api(server: gitlab.Server) -> GitLabApi:
    """Return a client with the token of the bot of the project."""
    return GitLabApi(server.project, server.add_token("bot", gitlab.DEVELOPER), server.url)
