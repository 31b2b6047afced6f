"""Answers comments on pull requests for `ci pin` and `ci comment`: what may run, what will run, and how it ended."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from toolbox.ci import comment_runs, comment_texts, github_api, pinning, refusals, run_comment, run_end, slash
from toolbox.ci.comment_runs import Settings
from toolbox.ci.github_api import Api
from toolbox.ci.pinning import Comment
from toolbox.ci.run_comment import WorkflowPart
from toolbox.ci.run_end import RunEnd
from toolbox.ci.slash import CommentRequest
from toolbox.commands import _ended_runs, _repository_files
from toolbox.config.contracts.ci import Contract, ResultLabels, Workflow
from toolbox.model.errors import InfrastructureError, UsageError, describe
from toolbox.model.foreign_text import clean
from toolbox.model.nearest import did_you_mean
from toolbox.model.text import abbreviated
from toolbox.orchestration import projects
from toolbox.orchestration import request as run_requests
from toolbox.orchestration.request import RunRequest
from toolbox.system import environ, places

log = logging.getLogger(__name__)

_PAGES: Final = "https://github.com"


def pin(project: str, workflow: str, text: str, source: Comment) -> str | None:
    """Do what a comment requests of a workflow, or answer why this is refused. Return the output of `ci pin`.

    A comment of a person without write access gets no answer, so that strangers cannot make the bot write.

    Raises:
        UsageError: the comment is refused.
        InfrastructureError: GitHub refused a request.
    """
    comment, faults = slash.read(text, places.projects())
    if not _concerns(comment, project, text, has_faults=bool(faults)):
        log.info("the comment does not request the project %s", project)
        return None
    api = github_api.from_environment()
    if not pinning.may_start(api, source.author):
        log.warning("%s may not start runs, because this needs write access", abbreviated(clean(source.author)))
        return None
    part = workflow_run(api.repository, project, workflow)
    try:
        with refusals.short():
            refusals.raise_for(faults)
            if comment.cancel:
                _cancel(api, comment, source, part)
                return None
            return _start(api, comment, source, part)
    except UsageError as refusal:
        with _not_fatal("the refusal could not be written into a comment"):
            run_comment.publish(api, source.pull_request, part, comment_texts.refused(part, str(refusal)))
        raise


def show_end(project: str, workflow: str, result: str, pull_request: int, revision: str) -> str:
    """Write how a workflow ended into its comment and onto a commit, and return the address of the comment.

    Without a token, write files with the same content, and return their directory.

    Raises:
        UsageError: the project or the workflow does not exist.
        InfrastructureError: GitHub refused a request.
    """
    api = github_api.from_environment() if github_api.has_token() else None
    part = workflow_run(api.repository if api else github_api.repository(), project, workflow)
    runs = _ended_runs.read()
    files = _repository_files.of_revision(revision) if api is None else _repository_files.on_forge(api, revision)
    lines = _ended_runs.named_lines(runs, files)
    end = RunEnd(part, result, revision, _ended_runs.markdown(runs), lines, _result_labels(part))
    if api is not None:
        return run_end.publish(api, pull_request, end)
    log.warning("$GH_TOKEN is not set: the comment, the status and the check run are written into files")
    return str(run_end.write(places.artifacts() / "pull_request_report", end))


def workflow_run(repository: str, project: str, workflow: str) -> WorkflowPart:
    """Return the workflow run of this job.

    Args:
        repository: the owner and the name of the repository; empty if unknown.

    Raises:
        UsageError: the project does not exist, or the name of the workflow is wrong.
    """
    if not re.fullmatch(r"[\w.-]{1,100}", workflow):  # the markers of issues and comments contain the name
        raise UsageError(f"{abbreviated(clean(workflow))} is not a name of a workflow: use letters, digits, _ and -")
    number = environ.get("GITHUB_RUN_ID") or "0"
    url = f"{environ.get('GITHUB_SERVER_URL') or _PAGES}/{repository}/actions/runs/{number}"
    return WorkflowPart(projects.find(project).name, workflow, number, url)


def _concerns(comment: CommentRequest, project: str, text: str, *, has_faults: bool) -> bool:
    """Return whether a comment is for a project. Other comments may contain commands of other programs."""
    names_project = re.search(rf"^/test\b.*(?<![\w.-]){re.escape(project)}(?![\w.-])", text, re.MULTILINE) is not None
    is_requested = any(test.project == project for test in comment.tests)
    return comment.cancel or is_requested or (has_faults and names_project)


def _start(api: Api, comment: CommentRequest, source: Comment, part: WorkflowPart) -> str | None:
    """Check a comment, pin its revision, and show what will run.

    Raises:
        UsageError: the comment may not start the run.
    """
    if comment.help:
        return None
    if comment.retest:
        raise UsageError("/retest does not work on GitHub, because a job does not have the earlier runs: use /test")
    runs = comment_runs.of(comment, _settings(part))
    body = comment_texts.pending(part, runs)
    revision = pinning.revision(api, source)
    with _not_fatal("the plan could not be written into a comment"):
        run_comment.publish(api, source.pull_request, part, body)
        run_comment.set_status(api, revision, part, *comment_texts.status("pending"))
    return f"revision={revision}"


def _settings(part: WorkflowPart) -> Settings:
    """Return the presets of a workflow, and those that a comment may choose."""
    workflows = _workflows(part)
    if part.workflow not in workflows:
        hint = did_you_mean(part.workflow, workflows, label="workflows")
        raise UsageError(f"the project {part.project} has no workflow `{part.workflow}`: {hint}")
    workflow = workflows[part.workflow]
    return Settings(part.project, workflow.presets, workflow.comment_presets)


def _result_labels(part: WorkflowPart) -> ResultLabels | None:
    """Return the labels of a workflow; None if it has none, or if the configuration does not have the workflow."""
    workflow = _workflows(part).get(part.workflow)
    return workflow.result_labels if workflow is not None else None


def _workflows(part: WorkflowPart) -> Mapping[str, Workflow]:
    return run_requests.configure(RunRequest(part.project))[1].block("ci", Contract).workflows


def _cancel(api: Api, comment: CommentRequest, source: Comment, part: WorkflowPart) -> None:
    """Cancel the runs of a workflow for a pull request, and say which.

    Raises:
        UsageError: the comment contains other commands.
    """
    if comment.tests or comment.retest or comment.help:
        raise UsageError("/cancel cannot be used together with other commands: write two comments")
    cancelled = run_comment.cancel(api, source.pull_request, part)
    run_comment.publish(api, source.pull_request, part, comment_texts.cancelled(part, cancelled))


@contextmanager
def _not_fatal(problem: str) -> Iterator[None]:
    """Log an error of GitHub as a warning."""
    try:
        yield
    except InfrastructureError as error:
        log.warning("%s: %s", problem, describe(error))
