"""A test server of GitHub's API with a pull request, for unit tests of its clients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.features.ci.servers import github
from toolbox.features.ci import run_comment
from toolbox.features.ci.github import github_api


@contextmanager
def serving() -> Iterator[github.Server]:
    """Yield a server whose member alice has opened the pull request 1. Clients make no pauses."""
    with pytest.MonkeyPatch.context() as patch, github.serving() as running:
        patch.setattr(github_api, "_WRITE_PAUSE", 0.0)
        for module in (github_api, run_comment):
            patch.setattr(module, "_FIRST_PAUSE", 0.01)
        running.add_user("alice", "write")
        running.push("topic", {"model.py": "steps = 1"}, by="alice")
        running.open_pull_request("topic", by="alice")
        yield running
