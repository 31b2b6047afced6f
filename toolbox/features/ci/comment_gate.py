"""Decides whether the comment that started a job may start runs, and answers the comment on its pull request.

A comment of a person who may not start runs gets no answer, so that strangers cannot make the bot write.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto

from toolbox.features.ci import comment_runs, comment_texts, refusals, retest_records, run_comment
from toolbox.features.ci.comment_job import Job
from toolbox.features.ci.comment_runs import CommentRun, Settings
from toolbox.features.ci.earlier_runs import EarlierRun
from toolbox.features.ci.refusals import Fault
from toolbox.features.ci.run_comment import WorkflowRun
from toolbox.features.ci.slash import CommentRequest, Line
from toolbox.ground.model.errors import InfrastructureError, UsageError, describe
from toolbox.ground.model.foreign_text import clean
from toolbox.ground.model.forge_data import CommentAction
from toolbox.ground.model.text import abbreviated

log = logging.getLogger(__name__)


class Decision(Enum):
    """What a job does about its comment."""

    START = auto()
    ANSWERED = auto()
    IGNORE = auto()


@dataclass(frozen=True, slots=True)
class Admission:
    """What a comment may start.

    Args:
        revision: the pinned revision; None if the comment is not on a pull request.
        runs: the runs to start.
        earlier: what `/retest` repeats; None without `/retest`.
        part: the workflow with what the runs leave out; None if nothing starts. It is determined before the runs, whose
            programs might change the configuration.
    """

    decision: Decision
    revision: str | None = None
    runs: Sequence[CommentRun] = ()
    earlier: Sequence[EarlierRun] | None = None
    part: WorkflowRun | None = None


def requested(job: Job, settings: Settings) -> list[CommentRun]:
    """Return the runs that the comment of a job requests. Another job has admitted the comment.

    Raises:
        UsageError: the comment is wrong.
    """
    comment, faults = job.request
    if comment.retest and settings.earlier is None:
        raise UsageError("/retest needs what `ci pin` printed: pass it with --retest")
    return comment_runs.of(comment, settings, faults)


def admit(job: Job) -> Admission:
    """Decide about the comment of a job, and answer the comment: with the plan, or with the reason of a refusal.

    Raises:
        UsageError: the comment is refused.
        InfrastructureError: the forge refused a request.
    """
    if job.event.action is not CommentAction.CREATED:
        log.info("the comment was %s: nothing runs", job.event.action.value)
        return Admission(Decision.IGNORE)
    comment, faults = job.request
    if not _concerns(comment, job.part.project, job.commands(), has_faults=bool(faults)):
        log.info("the comment does not request the project %s", job.part.project)
        return Admission(Decision.IGNORE)
    if not _may_start(job):
        return Admission(Decision.IGNORE)
    try:
        with refusals.short():
            return _admit(job, comment, faults)
    except UsageError as refusal:
        with not_fatal("the refusal could not be written into a comment"):
            job.publish(comment_texts.refused(job.part, str(refusal)))
        raise


@contextmanager
def not_fatal(problem: str) -> Iterator[None]:
    """Log an error of a forge as a warning."""
    try:
        yield
    except InfrastructureError as error:
        log.warning("%s: %s", problem, describe(error))


def _may_start(job: Job) -> bool:
    """Return whether the author of the comment may start runs, and log a refusal."""
    is_allowed = job.is_allowed()
    if not is_allowed:
        log.warning(
            "%s may not start runs: ci.commenters of config/%s.yaml says whose comments may",
            abbreviated(clean(job.event.author)),
            job.part.project,
        )
    return is_allowed


def _concerns(comment: CommentRequest, project: str, commands: Iterable[Line], *, has_faults: bool) -> bool:
    """Return whether a comment is for a project. Other comments may contain commands of other programs."""
    name = re.compile(rf"(?<![\w.-]){re.escape(project)}(?![\w.-])")
    names_project = any(line.name == "test" and name.search(line.rest) for line in commands)
    is_requested = any(test.project == project for test in comment.tests)
    is_retest = any(retest.project in (None, project) for retest in comment.retest)
    is_common = comment.cancel or comment.help
    return is_common or is_requested or is_retest or (has_faults and names_project)


def _admit(job: Job, comment: CommentRequest, faults: list[Fault]) -> Admission:
    refusals.raise_for(faults)
    if job.event.pull_request is not None:
        job.pull_requests.verify(job.event)
    if comment.cancel:
        _cancel(job, comment)
        return Admission(Decision.ANSWERED)
    if comment.help:
        job.settings(None)  # raises if there is no such workflow
        log.info("the answer is %s", job.publish(comment_texts.helped(job.part, job.block)))
        return Admission(Decision.ANSWERED)
    return _start(job, comment)


def _start(job: Job, comment: CommentRequest) -> Admission:
    """Pin the revision, check a comment, and show what will run.

    Raises:
        UsageError: the comment may not start the run.
    """
    revision = _pinned(job)
    earlier = _earlier(job) if comment.retest else None
    runs = comment_runs.of(comment, job.settings(revision, earlier))
    part = job.status_part(revision)
    text = comment_texts.pending(part, runs)
    with not_fatal("the plan could not be written into a comment"):
        job.publish(text)
        job.set_status(part, revision, *comment_texts.status("pending"))
    return Admission(Decision.START, revision, runs, earlier, part)


def _earlier(job: Job) -> list[EarlierRun] | None:
    """Return what did not pass in the newest run on the pull request; None if the job is not of a pull request.

    Raises:
        UsageError: there is no run, or it has not ended.
    """
    if job.event.pull_request is None:
        return None
    comments = run_comment.earlier(job.pull_requests, job.event.pull_request, job.part)
    records = [record for _, text in comments if (record := retest_records.find(text)) is not None]
    if not records:
        raise UsageError(f"/retest: there is no earlier run on this pull request: use /test {job.part.project}")
    return retest_records.decoded(records[-1])


def _pinned(job: Job) -> str | None:
    """Return the revision to test; None if the comment is not on a pull request.

    Raises:
        UsageError: the pull request may not be tested, or has changed since the comment.
    """
    if job.event.pull_request is None:
        return None
    revision = job.pull_requests.revision(job.event)
    if job.event.revision is not None and job.event.revision != revision:
        raise UsageError(
            f"the CI system tests {abbreviated(clean(job.event.revision))}, but the comment is about {revision}:\n"
            "  look at the latest commits, and comment again"
        )
    return revision


def _cancel(job: Job, comment: CommentRequest) -> None:
    """Cancel the runs of a workflow for a pull request, and say which.

    Raises:
        UsageError: the comment contains other commands, or is not on a pull request.
    """
    if comment.tests or comment.retest or comment.help:
        raise UsageError("/cancel cannot be used together with other commands: write two comments")
    if job.event.pull_request is None:
        raise UsageError("/cancel works only in a comment on a pull request: end the run where it was started")
    cancelled = run_comment.cancel(job.forge, job.pull_requests, job.event.pull_request, job.part)
    job.publish(comment_texts.cancelled(job.part, cancelled))
