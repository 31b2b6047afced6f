"""Runs and reports what the comment that started this job requests, for `ci pin`, `ci run` and `ci comment`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from toolbox.ci import comment_gate, comment_texts
from toolbox.ci.comment_gate import Decision, Job
from toolbox.commands import _comment_runs
from toolbox.model.errors import UsageError, describe
from toolbox.model.verdicts import ExitCode
from toolbox.reports.forge import github
from toolbox.runs import layout, run_reader
from toolbox.system import places

log = logging.getLogger(__name__)

_MOST_DETAILS: Final = 60_000  # bytes; an issue or a comment has at most 65,536 characters
_MOST_REPORTS: Final = 6
_RESULTS: Final = {
    ExitCode.PASSED: "success",
    ExitCode.SIGINT: "cancelled",
    ExitCode.SIGTERM: "cancelled",
    ExitCode.DEADLINE: "cancelled",
}


def pin(job: Job) -> str | None:
    """Do what the comment of a job requests, or answer why this is refused. Return the output of `ci pin`.

    Raises:
        UsageError: the comment is refused.
        InfrastructureError: the forge refused a request.
    """
    if job.event.pull_request is None:
        raise UsageError("ci pin: the job was not started by a comment on a pull request: use `ci run`")
    admission = comment_gate.admit(job)
    return None if admission.revision is None else f"revision={admission.revision}"


def run(
    job: Job, *, revision: str | None, override_files: Sequence[Path], deadline: float | None, as_json: bool
) -> int:
    """Run what the comment of a job requests, and return the exit code.

    Args:
        revision: what `ci pin` printed in another job, which has admitted the comment and shows the result; None if
            this job does this.

    Raises:
        UsageError: the comment is refused.
        InfrastructureError: the forge refused a request.
    """
    deadline = deadline or job.workflow.timeout
    if revision is not None:
        runs = comment_gate.requested(job, job.settings(revision, override_files))
        _comment_runs.announce(runs, as_json=as_json)
        return _comment_runs.run_all(runs, deadline=deadline, as_json=as_json).exit_code
    admission = comment_gate.admit(job, override_files)
    if admission.decision is not Decision.START:
        return ExitCode.PASSED if admission.decision is Decision.ANSWERED else ExitCode.NOTHING_RAN
    outcome = _comment_runs.Outcome(ExitCode.ERROR)
    try:
        _comment_runs.announce(admission.runs, as_json=as_json)
        outcome = _comment_runs.run_all(admission.runs, deadline=deadline, as_json=as_json)
    finally:
        with comment_gate.not_fatal("the result could not be shown on the pull request"):
            result = _RESULTS.get(ExitCode(outcome.exit_code), "failure")
            log.info("the report is %s", _show_end(job, result, admission.revision, outcome.directories))
    return outcome.exit_code


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
    limit = _MOST_DETAILS // max(1, len(shown))
    texts = []
    for directory in shown:
        try:
            texts.append(github.render(run_reader.read(directory), limit=limit))
        except Exception as error:  # noqa: BLE001  # code under test may have written the run
            log.warning("there is no report of the run %s: %s", directory.name, describe(error))
    return "\n\n".join(texts)


def _show_end(job: Job, result: str, revision: str | None, directories: Sequence[Path]) -> str:
    address = job.publish(comment_texts.ended(job.part, result, reports(directories)))
    job.set_status(revision, *comment_texts.status(result))
    return address
