"""Answers comments on pull requests for `ci pin` and `ci comment`: what may run, what will run, and how it ended."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from toolbox.ci import comment_runs, comment_texts, github_api, pinning, refusals, run_comment, slash
from toolbox.ci.comment_runs import Settings
from toolbox.ci.github_api import Api
from toolbox.ci.pinning import Comment
from toolbox.ci.run_comment import WorkflowPart
from toolbox.ci.slash import CommentRequest
from toolbox.config.contracts.ci import Contract
from toolbox.model.errors import InfrastructureError, UsageError, describe
from toolbox.model.foreign_text import clean
from toolbox.model.nearest import did_you_mean
from toolbox.model.text import abbreviated
from toolbox.orchestration import projects
from toolbox.orchestration import request as run_requests
from toolbox.orchestration.request import RunRequest
from toolbox.reports.forge import github
from toolbox.runs import layout, run_reader
from toolbox.system import environ, places

log = logging.getLogger(__name__)

_MOST_DETAILS: Final = 60_000  # bytes; an issue or a comment has at most 65,536 characters
_MOST_REPORTS: Final = 6
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
    part = workflow_run(api, project, workflow)
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

    Raises:
        UsageError: the project or the workflow does not exist.
        InfrastructureError: GitHub refused a request.
    """
    api = github_api.from_environment()
    part = workflow_run(api, project, workflow)
    address = run_comment.publish(api, pull_request, part, comment_texts.ended(part, result, reports()))
    run_comment.set_status(api, revision, part, *comment_texts.status(result))
    return address


def workflow_run(api: Api, project: str, workflow: str) -> WorkflowPart:
    """Return the workflow run of this job.

    Raises:
        UsageError: the project does not exist, or the name of the workflow is wrong.
    """
    if not re.fullmatch(r"[\w.-]{1,100}", workflow):  # the markers of issues and comments contain the name
        raise UsageError(f"{abbreviated(clean(workflow))} is not a name of a workflow: use letters, digits, _ and -")
    number = environ.get("GITHUB_RUN_ID") or "0"
    url = f"{environ.get('GITHUB_SERVER_URL') or _PAGES}/{api.repository}/actions/runs/{number}"
    return WorkflowPart(projects.find(project).name, workflow, number, url)


def reports() -> str:
    """Return reports of the newest runs in the directory of artifacts as Markdown; empty if there is no run."""
    runs = layout.runs(places.artifacts())[-_MOST_REPORTS:]
    limit = _MOST_DETAILS // max(1, len(runs))
    texts = []
    for directory in runs:
        try:
            texts.append(github.render(run_reader.read(directory), limit=limit))
        except Exception as error:  # noqa: BLE001  # code under test may have written the run
            log.warning("there is no report of the run %s: %s", directory.name, describe(error))
    return "\n\n".join(texts)


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
    workflows = run_requests.configure(RunRequest(part.project))[1].block("ci", Contract).workflows
    if part.workflow not in workflows:
        hint = did_you_mean(part.workflow, workflows, label="workflows")
        raise UsageError(f"the project {part.project} has no workflow `{part.workflow}`: {hint}")
    workflow = workflows[part.workflow]
    return Settings(part.project, workflow.presets, workflow.comment_presets)


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
