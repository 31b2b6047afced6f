"""The end of a run is shown on its pull request: by `ci comment`, and by the scripts of the generated workflows."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from tests.fakes.history import Past, Tried
from tests.features.ci.fakes.github_actions import Job, Runner
from tests.features.ci.functional.test_ci_workflows import (
    PULL_REQUEST,
    change,
    comments,
    generated,
    head,
    project,
    run_comment,
    runner,
    server,
    states,
)
from tests.features.ci.servers import github
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.testing import Outcome, Workspace

__all__ = ["generated", "project", "runner", "server"]  # fixtures

PRINTED = (
    '  File "{}/model.py", line 1, in step',
    "::error file=model.py,line=9::forged",
    "model.py:9: forged \x1b[31m",
    "../../model.py:7: x",
    "/etc/passwd:1: x",
    "wrong.py:1: x",
)


def failing(project: Workspace) -> None:
    """Let the project print lines that name files, and fail."""
    lines = [line.replace("{}", str(project.directory)) for line in PRINTED]
    change(project, test=[f"printf '%s\\n' {shlex.join(lines)} >&2; exit 1"])


def configure(project: Workspace, text: str) -> None:
    """Add a field to the workflow for comments, and generate the workflow files again."""
    file = project.directory / "config/small.yaml"
    file.write_text(file.read_text().replace("comment_presets:", f"{text}, comment_presets:"))
    outcome = project.run("ci", "workflows", "small")
    assert outcome.exit_code == 0, str(outcome)


def check_runs(runner: Runner) -> list[Any]:
    return list(runner.server.check_runs(head(runner)))


def labels(runner: Runner) -> list[str]:
    return [label.name for label in runner.server.issue(PULL_REQUEST).labels]


def test_the_last_run_is_shown_with_annotations_of_its_failure_and_a_label(project: Workspace, runner: Runner) -> None:
    configure(project, "result_labels: {passed: tests passed, failed: tests failed}")
    failing(project)
    jobs = run_comment(project, runner, "/test small")
    assert [jobs[name].result for name in ("run", "report")] == ["failure", "success"], jobs["report"].output
    (run,) = check_runs(runner)
    assert (run.name, run.conclusion) == ("small on_demand report", "failure")
    places = [(each["path"], each["start_line"], each["annotation_level"]) for each in run.annotations]
    assert sorted(places) == [("model.py", 1, "failure"), ("model.py", 9, "failure")]
    assert "\x1b" not in json.dumps(run.annotations)
    assert states(runner) == ["pending", "failure"]
    assert "<h2>failed" in str(run.output["summary"])
    assert labels(runner) == ["tests failed"]
    change(project, test=["true"])
    run_comment(project, runner, "/test small")
    assert [(run.conclusion, run.annotations) for run in check_runs(runner)][1:] == [("success", [])]
    assert labels(runner) == ["tests passed"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("result_labels: {passed: run it, failed: bad}", "a label of `result_labels` must not start a workflow"),
        ("result_labels: {passed: Same, failed: same}", "must be different labels"),
    ],
)
def test_labels_that_would_cause_trouble_are_refused(project: Workspace, fields: str, message: str) -> None:
    file = project.directory / "config/small.yaml"
    file.write_text(file.read_text().replace("comment_presets:", f"{fields}, comment_presets:"))
    outcome = project.run("ci", "workflows", "small")
    assert (outcome.exit_code, message in outcome.stderr) == (2, True), str(outcome)


def end(
    project: Workspace, server: github.Server | None, *, permissions: dict[str, str] | None = None, revision: str
) -> Outcome:
    """Call `ci comment` as the job `report` does; without a server, there is no token."""
    author = {"user": {"login": "alice"}, "created_at": "2026-11-26T00:00:00Z"}
    comment = {"id": 7, "body": "/test small", **author}
    event = {"action": "created", "comment": comment, "issue": {"number": PULL_REQUEST, "pull_request": {}}}
    file = project.directory / "event.json"
    file.write_text(json.dumps(event))
    variables = {
        "GH_TOKEN": "",
        "GITHUB_ACTIONS": "true",
        "GITHUB_EVENT_NAME": "issue_comment",
        "GITHUB_EVENT_PATH": str(file),
        "GITHUB_REPOSITORY": "owner/name",
        "GITHUB_RUN_ID": "77",
    }
    if server is not None:
        granted = permissions or {"pull_requests": "write", "statuses": "write", "checks": "write"}
        variables |= {"GITHUB_API_URL": server.url, "GH_TOKEN": server.add_token(**granted)}
    flags = ["--result=failure", f"--revision={revision}"]
    return project.run("ci", "comment", "small", "on_demand", *flags, env=variables)


def many_failures(project: Workspace, count: int, message: str) -> Path:
    """Write a run with many cells that failed."""
    cells = {
        f"x={number},y=`@octocat` <b>": [Tried(Verdict.FAILED, Cause.PRODUCT, f"{message} {number}")]
        for number in range(count)
    }
    return Past(cells, project="small").write(project.directory / "artifacts")


def test_hundreds_of_failures_stay_within_the_limits(project: Workspace, runner: Runner) -> None:
    many_failures(project, 300, "model.py:3: broken\n" + "x" * 500)
    outcome = end(project, runner.server, revision=head(runner))
    assert outcome.exit_code == 0, str(outcome)
    (text,) = comments(runner)
    assert len(text) <= 65_536
    rendered = MarkdownIt("gfm-like", {"linkify": False}).render(text)
    assert "and " in rendered
    assert "<b>" not in rendered
    (run,) = check_runs(runner)
    assert len(str(run.output["summary"])) <= 65_535
    (annotation,) = run.annotations
    assert annotation["title"].startswith("300 failed steps: x=0,y=`@octocat` <b>")


def test_a_missing_permission_for_check_runs_is_one_warning(project: Workspace, runner: Runner) -> None:
    many_failures(project, 2, "model.py:3: broken")
    granted = {"pull_requests": "write", "statuses": "write"}
    outcome = end(project, runner.server, permissions=granted, revision=head(runner))
    assert outcome.exit_code == 0, str(outcome)
    assert outcome.stderr.count("there is no check run with annotations, only the commit status") == 1
    assert "Traceback" not in outcome.stderr
    assert states(runner) == ["failure"]


def test_faults_of_github_are_overcome(project: Workspace, runner: Runner) -> None:
    many_failures(project, 2, "model.py:3: broken")
    for method, path in (("GET", "*/git/trees/*"), ("POST", "*/comments"), ("POST", "*/statuses/*")):
        runner.server.faults.add(method, path, github.secondary_rate_limit(retry_after=1))
    outcome = end(project, runner.server, revision=head(runner))
    assert outcome.exit_code == 0, str(outcome)
    assert (len(comments(runner)), len(check_runs(runner)[0].annotations)) == (1, 1)


def test_without_the_files_of_the_revision_there_are_no_annotations(project: Workspace, runner: Runner) -> None:
    many_failures(project, 2, "model.py:3: broken")
    runner.server.faults.add("GET", "*/git/trees/*", github.Fault(404, {"message": "Not Found"}))
    outcome = end(project, runner.server, revision=head(runner))
    assert "there are no annotations, because the files of" in outcome.stderr
    assert [run.annotations for run in check_runs(runner)] == [[]]


def test_without_a_token_the_report_is_in_files(project: Workspace) -> None:
    many_failures(project, 3, "model.py:3: broken")
    outcome = end(project, None, revision="5" * 40)
    assert outcome.exit_code == 0, str(outcome)
    directory = Path(outcome.stdout.strip())
    assert directory == project.artifacts / "pull_request_report"
    text = (directory / "comment.md").read_text()
    assert text.startswith("<!-- topgallant-run: small/on_demand/77 -->\n<!-- topgallant-retest")
    assert "**Topgallant**: `small` did not pass" in text
    (created,) = json.loads((directory / "check_run.json").read_text())
    assert (created["head_sha"], created["conclusion"]) == ("5" * 40, "failure")
    assert json.loads((directory / "status.json").read_text())["state"] == "failure"
    assert "GH_TOKEN is not set" in outcome.stderr


def test_a_pull_request_of_a_fork_has_annotations_of_the_workflow(project: Workspace, runner: Runner) -> None:
    failing(project)
    (project.directory / "model.py").write_text("steps = 1\n")
    for command in ("git init -q", "git add model.py", "git -c user.name=a -c user.email=a@b commit -q -m x"):
        subprocess.run(shlex.split(command), cwd=project.directory, check=True)
    job = cpu(project, runner)
    lines = [line for line in job.steps["Report"].output.splitlines() if line.startswith("::error")]
    assert [line.split("title=")[0] for line in lines] == ["::error file=model.py,line=1,"]


def cpu(project: Workspace, runner: Runner) -> Job:
    """Run the workflow for the pull requests of forks, whose jobs have no token that can write."""
    file = project.directory / ".github/workflows/small-cpu.yml"
    job = runner.run(file, "pull_request", {"pull_request": {"number": PULL_REQUEST}})["run"]
    assert job.result == "failure"
    return job
