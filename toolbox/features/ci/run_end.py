"""Shows how a workflow run ended: by its comment, a commit status, a check run and labels; or by files with the same.

The status and the comment are necessary. If the forge refuses something else, a warning says so, and the rest is shown.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from toolbox.config.contracts.ci import ResultLabels
from toolbox.features.ci import comment_texts, run_comment
from toolbox.features.ci.comment_job import Job
from toolbox.features.ci.earlier_runs import EarlierRun
from toolbox.features.ci.github import check_runs
from toolbox.features.ci.run_comment import WorkflowRun
from toolbox.ground.extensions.protocols import ReportingPullRequests
from toolbox.ground.model.errors import InfrastructureError, describe
from toolbox.ground.model.forge_data import CommitReport, NamedLine, ResultLabel
from toolbox.ground.system import filesystem, redaction

log = logging.getLogger(__name__)

COMMENT: Final = "comment.md"
STATUS: Final = "status.json"
CHECK_RUN: Final = "check_run.json"
LABELS: Final = "labels.json"


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How a workflow run ended.

    Args:
        result: the result of the job that ran the project: `success`, `failure`, `cancelled` or `skipped`.
        revision: the tested commit; None if it is unknown.
        report: the reports of the runs as Markdown; empty if there are none.
        lines: the lines of the repository that failures name.
        labels: the labels for results; None if the pull request gets no label.
        unpassed: what `/retest` will repeat; None if it is unknown.
    """

    part: WorkflowRun
    result: str
    revision: str | None
    report: str
    lines: Sequence[NamedLine] = ()
    labels: ResultLabels | None = None
    unpassed: Sequence[EarlierRun] | None = None

    @property
    def has_passed(self) -> bool:
        """Whether the job passed."""
        return self.result == "success"

    @property
    def comment(self) -> str:
        """The text of the comment."""
        return comment_texts.ended(self.part, self.result, self.report, self.unpassed)

    @property
    def commit_report(self) -> CommitReport | None:
        """The report that the tested commit gets; None without a commit."""
        if self.revision is None:
            return None
        part, title = self.part, f"{self.part.project} {comment_texts.status(self.result)[1]}"
        name = f"{part.project} {part.workflow} report{' (partial)' if part.is_partial else ''}"
        return CommitReport(
            self.revision, name, part.marker, title, self.result, self.report, part.url, tuple(self.lines)
        )

    @property
    def label(self) -> ResultLabel | None:
        """The label that the pull request gets; None if it gets none, as after a partial run that passed."""
        if self.labels is None or (self.part.is_partial and self.has_passed):
            return None
        names = (self.labels.passed, self.labels.failed)
        added, other = names if self.has_passed else reversed(names)
        return ResultLabel(added, self.has_passed, other)


def publish(job: Job, end: RunEnd) -> str:
    """Show the end of a run on a pull request and on its commit, and return the address of the comment.

    Raises:
        UsageError: the forge needs something that the environment does not have.
        InfrastructureError: the forge refused the status or the comment.
    """
    job.set_status(
        end.part, end.revision, *comment_texts.status(end.result)
    )  # first, because a branch may require the status
    address = job.publish(end.comment)
    number = job.event.pull_request
    if number is None or not isinstance(pull_requests := job.pull_requests, ReportingPullRequests):
        return address
    if (report := end.commit_report) is not None:
        with _warning("there is no check run with annotations, only the commit status"):
            run_comment.repeated(lambda: pull_requests.show_report(report))
    if (label := end.label) is not None:
        with _warning("the labels of the pull request could not be changed"):
            pull_requests.set_label(number, label)
    return address


def write(directory: Path, end: RunEnd) -> Path:
    """Write what `publish` would send into files, so that another program can send it. Return the directory."""
    state, description = comment_texts.status(end.result)
    status = asdict(run_comment.status_of(end.part, state, description))
    contents: dict[str, object] = {STATUS: {"revision": end.revision, **status}}
    if (report := end.commit_report) is not None:
        contents[CHECK_RUN] = check_runs.requests(report)
    if (label := end.label) is not None:
        contents[LABELS] = {"add": [label.name], "remove": [label.other]}
    filesystem.make_directory(directory)
    comment = redaction.current()(end.comment)
    filesystem.write_text(directory / COMMENT, run_comment.body_of(end.part, comment))
    for name, content in contents.items():
        filesystem.write_text(directory / name, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    return directory


@contextmanager
def _warning(problem: str) -> Iterator[None]:
    """Log an error of the forge as a warning."""
    try:
        yield
    except InfrastructureError as error:
        log.warning("%s: %s", problem, describe(error))
