"""A check run shows the report and the lines that failures name, within the limits of GitHub."""

from __future__ import annotations

from typing import Any

import pytest

from tests.features.ci.servers import github
from tests.features.ci.unit.servers import github_schema
from toolbox.features.ci.github import check_runs, repository_tree
from toolbox.features.ci.github.github_api import GitHubApi
from toolbox.ground.model.errors import InfrastructureError, RefusedRequest
from toolbox.ground.model.forge_data import CommitReport, NamedLine

URL = "https://github.com/owner/name/actions/runs/77"


@pytest.fixture
def bot(server: github.Server) -> GitHubApi:
    return GitHubApi("owner/name", server.add_token(checks="write", contents="read"), server.url)


def head(server: github.Server) -> str:
    return server.repository.branches["topic"]


def line(number: int, *, is_failure: bool = True) -> NamedLine:
    return NamedLine("model.py", number, f"model.py:{number}: broken", ("x=a",), is_failure=is_failure)


def report(server: github.Server, *lines: NamedLine, **changed: Any) -> CommitReport:
    names = {"name": "small on_demand report", "key": "small/on_demand/77", "url": URL}
    values = {"result": "failure", "title": "small did not pass", "text": "<h2>failed</h2>", **names, **changed}
    return CommitReport(head(server), **values, lines=lines)


def test_a_check_run_has_a_report_and_annotations(server: github.Server, bot: GitHubApi) -> None:
    check_runs.publish(bot, report(server, line(3), line(5, is_failure=False)))
    (run,) = server.check_runs(head(server))
    assert (run.name, run.status, run.conclusion) == ("small on_demand report", "completed", "failure")
    assert (run.output["title"], run.output["summary"]) == ("small did not pass", "<h2>failed</h2>")
    assert run.annotations == [
        {
            "path": "model.py",
            "start_line": number,
            "end_line": number,
            "annotation_level": level,
            "title": "1 failed step: x=a",
            "message": f"model.py:{number}: broken",
        }
        for number, level in ((3, "failure"), (5, "warning"))
    ]
    for recorded in server.requests():
        github_schema.check(recorded)


@pytest.mark.parametrize("count", [0, 50, 51, 120])
def test_each_request_has_at_most_50_annotations(server: github.Server, bot: GitHubApi, count: int) -> None:
    check_runs.publish(bot, report(server, *map(line, range(1, count + 1))))
    (run,) = server.check_runs(head(server))
    assert [each["start_line"] for each in run.annotations] == list(range(1, count + 1))
    assert run.conclusion == "failure"


def test_long_texts_are_within_the_limits(server: github.Server, bot: GitHubApi) -> None:
    steps = tuple(f"model={'é' * 200},x={number}" for number in range(1000))
    hostile = NamedLine("model.py", 1, "x" * 300, steps, is_failure=True)
    check_runs.publish(bot, report(server, hostile, title="t" * 1000, text="r" * 70_000))
    (run,) = server.check_runs(head(server))
    assert run.output["summary"] == f"See the [workflow run]({URL})."
    assert len(str(run.output["title"])) == len(run.annotations[0]["title"]) == 255


@pytest.mark.parametrize(
    ("result", "conclusion"), [("success", "success"), ("cancelled", "cancelled"), ("skipped", "cancelled")]
)
def test_only_a_pass_is_a_success(server: github.Server, bot: GitHubApi, result: str, conclusion: str) -> None:
    check_runs.publish(bot, report(server, result=result))
    assert [run.conclusion for run in server.check_runs(head(server))] == [conclusion]


@pytest.mark.parametrize(
    "fault", [github.server_error(502), github.dropped_connection(), github.secondary_rate_limit()], ids=range(3)
)
def test_annotations_are_added_after_a_fault(server: github.Server, bot: GitHubApi, fault: github.Fault) -> None:
    server.faults.add("PATCH", "*/check-runs/*", fault)
    check_runs.publish(bot, report(server, *map(line, range(1, 60))))
    (run,) = server.check_runs(head(server))
    assert len(run.annotations) == 59


def test_a_token_without_the_permission_is_refused(server: github.Server, api: GitHubApi) -> None:
    with pytest.raises(RefusedRequest, match="403"):
        check_runs.publish(api, report(server))


def test_the_files_of_a_revision_are_listed(server: github.Server, bot: GitHubApi) -> None:
    sha = server.push("topic", {"src/deep/kernel.c": "x"}, by="alice")
    assert repository_tree.paths(bot, sha) == {"model.py", "src/deep/kernel.c"} | repository_tree.paths(bot, "main")
    for recorded in server.requests():
        github_schema.check(recorded)


def test_an_unknown_revision_is_an_error(bot: GitHubApi) -> None:
    with pytest.raises(InfrastructureError, match="404"):
        repository_tree.paths(bot, "1" * 40)
