"""Answers comments on pull requests for `ci pin` and `ci comment`: what may run, what will run, and how it ended."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from toolbox.ci import comment_runs, comment_texts, github_api, pinning, refusals, run_comment, slash
from toolbox.ci.comment_runs import Settings
from toolbox.ci.github_api import Api
from toolbox.ci.pinning import Comment
from toolbox.ci.run_comment import WorkflowPart
from toolbox.commands import _run_directories
from toolbox.model.errors import InfrastructureError, UsageError, describe
from toolbox.model.foreign_text import clean
from toolbox.model.text import abbreviated
from toolbox.orchestration import projects
from toolbox.reports.forge import github
from toolbox.runs import run_reader
from toolbox.system import environ, places

log = logging.getLogger(__name__)

_MOST_DETAILS: Final = 60_000  # bytes; an issue or a comment has at most 65,536 characters
_CANCEL: Final = re.compile(r"^/cancel\s*$", re.MULTILINE)


def pin(project: str, workflow: str, text: str, source: Comment, presets: Sequence[str] | None) -> str | None:
    """Do what a comment requests of a workflow, or answer why this is refused. Return the output of `ci pin`.

    Args:
        presets: the only presets that the comment may choose; None for any preset.

    Raises:
        UsageError: the comment is refused.
        InfrastructureError: GitHub refused a request.
    """
    requests_test = re.search(rf"^/test\s.*(?<!\S){re.escape(project)}(?!\S)", text, re.MULTILINE)
    requests_cancel = _CANCEL.search(text)
    if not (requests_test or requests_cancel):
        return None  # other comments may contain commands of other programs
    api = github_api.from_environment()
    part = workflow_run(api, project, workflow)
    try:
        if requests_cancel:
            _cancel(api, text, source, part)
            return None
        return _pinned(api, project, text, source, presets)
    except UsageError as refusal:
        with _not_fatal("the refusal could not be written into a comment"):
            run_comment.publish(api, source.pull_request, part, comment_texts.refused(part, str(refusal)))
        raise


def comment(project: str, workflow: str, result: str, pull_request: int, *, revision: str, text: str) -> str:
    """Write the state of a workflow into its comment and onto a commit, and return the address of the comment.

    Raises:
        UsageError: the comment requests something that is not possible.
        InfrastructureError: GitHub refused a request.
    """
    api = github_api.from_environment()
    part = workflow_run(api, project, workflow)
    if result == "pending":
        runs = comment_runs.of(slash.parse(text, places.projects()), Settings(project))
        body = comment_texts.pending(part, runs)
    else:
        body = comment_texts.ended(part, result, newest_report())
    if revision:
        state, description = comment_texts.status(result)
        run_comment.set_status(api, revision, part, state, description)
    return run_comment.publish(api, pull_request, part, body)


def workflow_run(api: Api, project: str, workflow: str) -> WorkflowPart:
    """Return the workflow run of this job.

    Raises:
        UsageError: the project does not exist, or the name of the workflow is wrong.
    """
    if not re.fullmatch(r"[\w.-]{1,100}", workflow):  # the markers of issues and comments contain the name
        raise UsageError(f"{abbreviated(clean(workflow))} is not a name of a workflow: use letters, digits, _ and -")
    number = environ.get("GITHUB_RUN_ID") or "0"
    url = f"{environ.get('GITHUB_SERVER_URL')}/{api.repository}/actions/runs/{number}"
    return WorkflowPart(projects.find(project).name, workflow, number, url)


def newest_report() -> str:
    """Return a report of the newest run, for an issue; empty if there is no run that can be read."""
    try:
        return github.render(run_reader.read(_run_directories.newest()), limit=_MOST_DETAILS)
    except Exception as error:  # noqa: BLE001  # code under test may have written the run
        log.warning("there is no report of the run: %s", describe(error))
        return ""


def _pinned(api: Api, project: str, text: str, source: Comment, presets: Sequence[str] | None) -> str | None:
    """Return the output of `ci pin`; None if the comment does not request the project.

    Raises:
        UsageError: the comment may not start the run.
    """
    with refusals.short():
        comment = slash.parse(text, places.projects())
        if comment.help or all(test.project != project for test in comment.tests):
            log.info("the comment does not request the project %s", project)
            return None
        if comment.cancel or comment.retest:
            raise UsageError("/cancel and /retest cannot be used together with /test here")
        comment_runs.of(comment, Settings(project, choices=presets))
    return f"revision={pinning.revision(api, source)}"


def _cancel(api: Api, text: str, source: Comment, part: WorkflowPart) -> None:
    """Cancel the runs of a workflow for a pull request.

    Raises:
        UsageError: the author may not cancel runs, or the comment contains other commands.
    """
    with refusals.short():
        comment = slash.parse(text, places.projects())
    if comment.tests or comment.retest:
        raise UsageError("/cancel cannot be used together with /test or /retest: write two comments")
    pinning.check_author(api, source.author)
    cancelled = run_comment.cancel(api, source.pull_request, part)
    log.info("cancelled: %s", ", ".join(cancelled) or "no run was running")


@contextmanager
def _not_fatal(problem: str) -> Iterator[None]:
    """Log an error of GitHub as a warning."""
    try:
        yield
    except InfrastructureError as error:
        log.warning("%s: %s", problem, describe(error))
