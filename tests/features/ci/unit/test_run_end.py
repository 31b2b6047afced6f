"""The end of a run is shown in several ways. Only the comment and the status are necessary."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.features.ci.servers import github
from toolbox.config.contracts.ci import ResultLabels
from toolbox.features.ci import run_end
from toolbox.features.ci.comment_job import Job
from toolbox.features.ci.forges.github import Forge
from toolbox.features.ci.github.github_api import GitHubApi
from toolbox.features.ci.github.pull_requests import GitHubPullRequests
from toolbox.features.ci.run_comment import WorkflowRun
from toolbox.features.ci.run_end import RunEnd
from toolbox.ground.model.errors import InfrastructureError
from toolbox.ground.model.forge_data import CommentEvent, NamedLine

PART = WorkflowRun("training_e2e", "on_demand", "77", "https://github.com/owner/name/actions/runs/77")
LABELS = ResultLabels(passed="good", failed="bad")


def ended(server: github.Server, *, labels: ResultLabels | None = LABELS, lines: int = 1) -> RunEnd:
    named = [NamedLine("model.py", 1 + number, "broken", ("x=a",), is_failure=True) for number in range(lines)]
    return RunEnd(PART, "failure", revision(server), "<h2>failed</h2>", named, labels)


class JobForge(Forge):
    """A job of GitHub Actions with a token of the test server."""

    def __init__(self, api: GitHubApi) -> None:
        self._api = api

    def pull_requests(self) -> GitHubPullRequests:
        return GitHubPullRequests(self._api)


def job(server: github.Server, **permissions: str) -> Job:
    token = server.add_token(**{"pull_requests": "write", "statuses": "write", "checks": "write", **permissions})
    event = CommentEvent("/test training_e2e", "alice", 1)
    return Job(JobForge(GitHubApi("owner/name", token, server.url)), event, PART)


def revision(server: github.Server) -> str:
    return server.repository.branches["topic"]


def test_the_end_is_shown_in_four_ways(server: github.Server) -> None:
    end = ended(server)
    address = run_end.publish(job(server), end)
    (comment,) = server.comments(1)
    assert str(comment.id) in address
    assert "`training_e2e` did not pass" in (comment.body or "")
    assert [status.state for status in server.statuses(revision(server))] == ["failure"]
    assert [run.conclusion for run in server.check_runs(revision(server))] == ["failure"]
    assert [label.name for label in server.issue(1).labels] == ["bad"]


def test_without_permission_for_check_runs_the_rest_is_shown_with_one_warning(
    server: github.Server, caplog: pytest.LogCaptureFixture
) -> None:
    end = ended(server)
    run_end.publish(job(server, checks="read"), end)
    assert [status.state for status in server.statuses(revision(server))] == ["failure"]
    assert [label.name for label in server.issue(1).labels] == ["bad"]
    (warning,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert warning.startswith("there is no check run with annotations, only the commit status: GitHub refused POST")


@pytest.mark.parametrize("path", ["*/labels", "*/labels/*", "*/check-runs"])
def test_a_server_that_fails_is_a_warning(server: github.Server, path: str, caplog: pytest.LogCaptureFixture) -> None:
    for method in ("GET", "POST", "DELETE"):
        server.faults.add(method, path, github.server_error(503), times=None)
    assert run_end.publish(job(server), ended(server))
    assert sum(record.levelname == "WARNING" for record in caplog.records) == 1


def test_a_comment_that_is_refused_is_an_error(server: github.Server) -> None:
    with pytest.raises(InfrastructureError):
        run_end.publish(job(server, pull_requests="read"), ended(server))


def test_files_have_what_would_be_sent(server: github.Server, tmp_path: Path) -> None:
    end = ended(server, lines=60)
    directory = run_end.write(tmp_path / "a/b", end)
    run_end.publish(job(server), end)
    (comment,) = server.comments(1)
    assert (directory / "comment.md").read_text() == comment.body
    create, update = json.loads((directory / "check_run.json").read_text())
    (run,) = server.check_runs(revision(server))
    assert [*create["output"]["annotations"], *update["output"]["annotations"]] == run.annotations
    (status,) = server.statuses(revision(server))
    assert json.loads((directory / "status.json").read_text()) == {
        "revision": end.revision,
        "state": status.state,
        "context": status.context,
        "description": status.description,
        "url": status.target_url,
    }
    assert json.loads((directory / "labels.json").read_text()) == {"add": ["bad"], "remove": ["good"]}


def test_without_labels_there_is_no_file_for_them(server: github.Server, tmp_path: Path) -> None:
    directory = run_end.write(tmp_path, ended(server, labels=None))
    assert sorted(file.name for file in directory.iterdir()) == ["check_run.json", "comment.md", "status.json"]


def test_a_partial_run_that_passed_has_no_label_and_a_report_with_another_name(server: github.Server) -> None:
    part = replace(PART, differences=("phases left out: prepare",))
    end = replace(ended(server), part=part, result="success")
    assert end.label is None
    assert end.commit_report is not None
    assert end.commit_report.name == "training_e2e on_demand report (partial)"
    assert replace(end, result="failure").label is not None


def test_the_status_is_set_even_if_the_comment_is_refused(server: github.Server) -> None:
    server.faults.add("*", "*/comments", github.Fault(403, {"message": "locked"}), times=None)
    with pytest.raises(InfrastructureError):
        run_end.publish(job(server), ended(server))
    assert [status.state for status in server.statuses(revision(server))] == ["failure"]
