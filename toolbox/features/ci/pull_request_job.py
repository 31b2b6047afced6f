"""Runs and reports what the comment that started this job requests, for `ci pin`, `ci run` and `ci comment`."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolbox.features.ci import (
    comment_execution,
    comment_gate,
    comment_texts,
    ended_runs,
    retest_records,
    run_end,
    run_progress,
)
from toolbox.features.ci.comment_gate import Decision
from toolbox.features.ci.comment_job import Job
from toolbox.features.ci.comment_runs import CommentRun
from toolbox.features.ci.github import github_api
from toolbox.features.ci.github.pull_requests import MEMBERS_TOKEN
from toolbox.features.ci.gitlab import gitlab_api
from toolbox.features.ci.run_comment import WorkflowRun
from toolbox.features.ci.run_end import RunEnd
from toolbox.ground.extensions.protocols import ReportingPullRequests
from toolbox.ground.model.errors import InfrastructureError, MissingToken, ToolboxError, UsageError, describe
from toolbox.ground.model.verdicts import ExitCode
from toolbox.ground.system import environ, places, redaction
from toolbox.reports.forge import repository_files
from toolbox.reports.forge.source_locations import RepositoryFiles

log = logging.getLogger(__name__)

_TOKENS: Final = (*github_api.TOKENS, gitlab_api.TOKEN, MEMBERS_TOKEN)
_RESULTS: Final = {
    ExitCode.PASSED: "success",
    ExitCode.SIGINT: "cancelled",
    ExitCode.SIGTERM: "cancelled",
}


@dataclass(frozen=True, slots=True)
class RunFlags:
    """The flags of `ci run` in a job.

    Args:
        revision: what `ci pin` printed in another job, which has admitted the comment and shows the result; None if
            this job does this.
        retest: what `ci pin` printed for `/retest`; empty or None without `/retest`.
        deadline: the time limit of all runs in seconds; None for that of the workflow.
    """

    revision: str | None
    retest: str | None
    deadline: float | None
    as_json: bool


def pin(job: Job) -> str | None:
    """Do what the comment of a job requests, or answer why this is refused. Return the output of `ci pin`.

    Raises:
        UsageError: the comment is refused.
        InfrastructureError: the forge refused a request.
    """
    if job.event.pull_request is None:
        raise UsageError("ci pin: the job was not started by a comment on a pull request: use `ci run`")
    admission = comment_gate.admit(job)
    if admission.revision is None:
        return None
    earlier = [] if admission.earlier is None else [f"retest={retest_records.encoded(admission.earlier)}"]
    return "\n".join([f"revision={admission.revision}", *earlier])


def run(job: Job, flags: RunFlags) -> int:
    """Run what the comment of a job requests, and return the exit code.

    Raises:
        UsageError: the comment is refused.
        InfrastructureError: the forge refused a request.
    """
    if flags.revision is not None:
        earlier = retest_records.decoded(flags.retest) if flags.retest else None
        runs = comment_gate.requested(job, job.settings(flags.revision, earlier))
        return _run_all(job, runs, flags).exit_code
    admission = comment_gate.admit(job)
    if (part := admission.part) is None:
        return ExitCode.PASSED if admission.decision is Decision.ANSWERED else ExitCode.NOTHING_RAN
    try:
        outcome = _run_all(job, admission.runs, flags)
    except ToolboxError as error:
        reason = describe(error)
        with _never_fatal():
            job.set_status(part, admission.revision, *comment_texts.status("failure"))
            job.publish(comment_texts.refused(part, reason))
        raise
    with _never_fatal():
        result = _RESULTS.get(ExitCode(outcome.exit_code), "failure")
        log.info("the report is %s", _show_end(job, part, result, admission.revision, outcome.directories))
    return outcome.exit_code


def _run_all(job: Job, runs: Sequence[CommentRun], flags: RunFlags) -> comment_execution.Outcome:
    _forget_tokens(job)
    deadline = job.workflow.timeout if flags.deadline is None else flags.deadline
    comment_execution.announce(runs, as_json=flags.as_json)
    with run_progress.shown(job, runs) as listeners:
        return comment_execution.run_all(runs, deadline=deadline, as_json=flags.as_json, listeners=listeners)


def _forget_tokens(job: Job) -> None:
    """Remove the tokens of forges from the environment, so that the programs that a run starts do not get them."""
    with suppress(UsageError):
        _ = job.pull_requests  # keeps the token, with which the result is shown
    redaction.current().add(token for name in _TOKENS if (token := environ.get(name)))
    environ.remove(*_TOKENS)


def show_end(job: Job, result: str, revision: str) -> str:
    """Write how a workflow ended into its comment and onto a commit, and return the address of the comment.

    Without a token, write files with the same content, and return their directory.

    Raises:
        UsageError: the revision is not a commit.
        InfrastructureError: the forge refused a request.
    """
    return _show_end(job, job.status_part(revision), result, revision, ended_runs.newest())


@contextmanager
def _never_fatal() -> Iterator[None]:
    """Log any error as a warning: the exit code is that of the runs, also if their report fails."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  # a forge of a workspace may raise any error
        log.warning("the result could not be shown on the pull request: %s", describe(error))


def _show_end(job: Job, part: WorkflowRun, result: str, revision: str | None, directories: Sequence[Path]) -> str:
    runs = ended_runs.read(directories)
    unpassed = ended_runs.unpassed(runs) if len(runs) == len(directories) else None
    unpassed = unpassed or None if result != "success" else unpassed  # a run that never began has no directory
    report, labels = ended_runs.markdown(runs), job.workflow.result_labels
    lines = ended_runs.named_lines(runs, _files(job, revision))
    end = RunEnd(part, result, revision, report, lines, labels, unpassed)
    try:
        return run_end.publish(job, end)
    except MissingToken as error:
        log.warning("%s\n  the comment, the status and the check run are written into files", error)
        return str(run_end.write((job.artifact_dir or places.artifacts()) / "pull_request_report", end))


def _files(job: Job, revision: str | None) -> RepositoryFiles:
    """Return the files of the tested revision, of which failures may name lines."""
    if revision is None:
        return RepositoryFiles(())
    with suppress(MissingToken):
        if job.event.pull_request is not None and isinstance(job.pull_requests, ReportingPullRequests):
            return _files_on_forge(job.pull_requests, revision)
    return repository_files.of_revision(revision)


def _files_on_forge(pull_requests: ReportingPullRequests, revision: str) -> RepositoryFiles:
    """Return the files of a revision that the forge has; no files, and a warning, if the forge does not list them."""
    try:
        return RepositoryFiles(pull_requests.files(revision), (str(Path.cwd()),))
    except InfrastructureError as error:
        log.warning("there are no annotations, because the files of %s are unknown: %s", revision, describe(error))
        return RepositoryFiles(())
