"""A pull request has the label for its latest result, and not the other one."""

from __future__ import annotations

import pytest

from tests.features.ci.servers import github
from toolbox.features.ci.github import result_labels
from toolbox.features.ci.github.github_api import GitHubApi
from toolbox.ground.model.errors import RefusedRequest
from toolbox.ground.model.forge_data import ResultLabel

PASSED = ResultLabel("tests: passed", is_pass=True, other="tests/failed?")
FAILED = ResultLabel("tests/failed?", is_pass=False, other="tests: passed")


def names(server: github.Server) -> list[str]:
    return [label.name for label in server.issue(1).labels]


def test_the_label_follows_the_result(server: github.Server, api: GitHubApi) -> None:
    server.add_label(1, "bug")
    for label in (PASSED, FAILED, FAILED):
        result_labels.apply(api, 1, label)
        assert names(server) == ["bug", label.name]
    colors = {name: label.color for name, label in server.repository.labels.items()}
    assert (colors["tests: passed"], colors["tests/failed?"]) == ("0e8a16", "d93f0b")


def test_an_existing_label_keeps_its_color(server: github.Server, api: GitHubApi) -> None:
    api.send("POST", "labels", {"name": "tests: passed", "color": "abcdef"})
    result_labels.apply(api, 1, PASSED)
    assert server.repository.labels["tests: passed"].color == "abcdef"


def test_a_label_that_another_job_creates_at_the_same_time_is_used(server: github.Server, api: GitHubApi) -> None:
    api.send("POST", "labels", {"name": "tests: passed", "color": "abcdef"})
    server.faults.add("GET", "*/labels/*", github.Fault(404, {"message": "Not Found"}))
    result_labels.apply(api, 1, PASSED)
    assert names(server) == ["tests: passed"]


def test_a_token_without_the_permission_is_refused(server: github.Server) -> None:
    reader = GitHubApi("owner/name", server.add_token(pull_requests="read"), server.url)
    with pytest.raises(RefusedRequest, match="403"):
        result_labels.apply(reader, 1, PASSED)
