"""Runs and reports what the comment that started this job requests, for `ci pin`, `ci run` and `ci comment`."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolbox.ci import comment_gate, comment_texts, earlier_runs, retest_records
from toolbox.ci.comment_gate import Decision
from toolbox.ci.comment_job import Job
from toolbox.ci.comment_runs import CommentRun
from toolbox.ci.earlier_runs import EarlierRun
from toolbox.commands import _comment_runs
from toolbox.model.errors import ToolboxError, UsageError, describe
from toolbox.model.verdicts import ExitCode
from toolbox.reports.forge import github
from toolbox.runs import layout, run_reader
from toolbox.system import places

log = logging.getLogger(__name__)

_MOST_REPORTS: Final = 6
_RESULTS: Final = {
    ExitCode.PASSED: "success",
    ExitCode.SIGINT: "cancelled",
    ExitCode.SIGTERM: "cancelled",
    ExitCode.DEADLINE: "cancelled",
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
    override_files: Sequence[Path]
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
        runs = comment_gate.requested(job, job.settings(flags.revision, flags.override_files, earlier))
        return _run_all(job, runs, flags).exit_code
    admission = comment_gate.admit(job, flags.override_files)
    if admission.decision is not Decision.START:
        return ExitCode.PASSED if admission.decision is Decision.ANSWERED else ExitCode.NOTHING_RAN
    try:
        outcome = _run_all(job, admission.runs, flags)
    except ToolboxError as error:
        reason = describe(error)
        with _never_fatal():
            job.publish(comment_texts.refused(job.part, reason))
            job.set_status(admission.revision, *comment_texts.status("failure"))
        raise
    with _never_fatal():
        result = _RESULTS.get(ExitCode(outcome.exit_code), "failure")
        log.info("the report is %s", _show_end(job, result, admission.revision, outcome.directories))
    return outcome.exit_code


def _run_all(job: Job, runs: Sequence[CommentRun], flags: RunFlags) -> _comment_runs.Outcome:
    deadline = job.workflow.timeout if flags.deadline is None else flags.deadline
    _comment_runs.announce(runs, as_json=flags.as_json)
    return _comment_runs.run_all(runs, deadline=deadline, as_json=flags.as_json)


def show_end(job: Job, result: str, revision: str) -> str:
    """Write how a workflow ended into its comment and onto a commit, and return the address of the comment.

    Raises:
        UsageError: the revision is not a commit.
        InfrastructureError: the forge refused a request.
    """
    job.settings(revision)
    return _show_end(job, result, revision, newest_runs())


def newest_runs() -> list[Path]:
    """Return the newest runs in the directory of artifacts, the oldest of them first."""
    return layout.runs(places.artifacts())[-_MOST_REPORTS:]


def reports(directories: Sequence[Path]) -> str:
    """Return reports of runs as Markdown; empty if there is no run."""
    shown = directories[-_MOST_REPORTS:]
    limit = comment_texts.MOST_DETAILS // max(1, len(shown))
    texts = []
    for directory in shown:
        try:
            texts.append(github.render(run_reader.read(directory), limit=limit))
        except Exception as error:  # noqa: BLE001  # code under test may have written the run
            log.warning("there is no report of the run %s: %s", directory.name, describe(error))
    return "\n\n".join(texts)


def _unpassed(directories: Sequence[Path]) -> list[EarlierRun] | None:
    """Return what did not pass in the runs; None if there is no run, or if one cannot be read."""
    try:
        runs = [earlier_runs.of(run_reader.read(directory)) for directory in directories]
    except Exception as error:  # noqa: BLE001  # code under test may have written the run
        log.warning("/retest will not know what did not pass: %s", describe(error))
        return None
    return [run for run in runs if run is not None] if runs else None


@contextmanager
def _never_fatal() -> Iterator[None]:
    """Log any error as a warning: the exit code is that of the runs, also if their report fails."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  # a forge of a workspace may raise any error
        log.warning("the result could not be shown on the pull request: %s", describe(error))


def _show_end(job: Job, result: str, revision: str | None, directories: Sequence[Path]) -> str:
    address = job.publish(comment_texts.ended(job.part, result, reports(directories), _unpassed(directories)))
    job.set_status(revision, *comment_texts.status(result))
    return address
