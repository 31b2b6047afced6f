"""A pull request has the label for its latest result, and not the other one."""

from __future__ import annotations

import pytest

from tests.servers import github
from toolbox.ci import result_labels
from toolbox.ci.github_api import GitHubApi, Refusal
from toolbox.config.contracts.ci import ResultLabels

LABELS = ResultLabels(passed="tests: passed", failed="tests/failed?")


def names(server: github.Server) -> list[str]:
    return [label.name for label in server.issue(1).labels]


def test_the_label_follows_the_result(server: github.Server, api: GitHubApi) -> None:
    server.add_label(1, "bug")
    for has_passed, label in ((True, "tests: passed"), (False, "tests/failed?"), (False, "tests/failed?")):
        result_labels.apply(api, 1, LABELS, has_passed=has_passed)
        assert names(server) == ["bug", label]
    colors = {name: label.color for name, label in server.repository.labels.items()}
    assert (colors["tests: passed"], colors["tests/failed?"]) == ("0e8a16", "d93f0b")


def test_an_existing_label_keeps_its_color(server: github.Server, api: GitHubApi) -> None:
    api.send("POST", "labels", {"name": "tests: passed", "color": "abcdef"})
    result_labels.apply(api, 1, LABELS, has_passed=True)
    assert server.repository.labels["tests: passed"].color == "abcdef"


def test_a_label_that_another_job_creates_at_the_same_time_is_used(server: github.Server, api: GitHubApi) -> None:
    api.send("POST", "labels", {"name": "tests: passed", "color": "abcdef"})
    server.faults.add("GET", "*/labels/*", github.Fault(404, {"message": "Not Found"}))
    result_labels.apply(api, 1, LABELS, has_passed=True)
    assert names(server) == ["tests: passed"]


def test_a_token_without_the_permission_is_refused(server: github.Server) -> None:
    reader = GitHubApi("owner/name", server.add_token(pull_requests="read"), server.url)
    with pytest.raises(Refusal, match="403"):
        result_labels.apply(reader, 1, LABELS, has_passed=True)
