"""Shows how a workflow run ended: by its comment, a commit status, a check run and labels; or by files with the same.

Only the comment is necessary. If GitHub refuses something else, a warning says so, and the rest is shown.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from toolbox.ci import check_run, comment_texts, result_labels, run_comment
from toolbox.ci.github_api import Api
from toolbox.ci.run_comment import WorkflowPart
from toolbox.config.contracts.ci import ResultLabels
from toolbox.model.errors import InfrastructureError, describe
from toolbox.reports.forge.source_locations import NamedLine
from toolbox.system import filesystem

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
        revision: the tested commit.
        report: the reports of the runs as Markdown; empty if there are none.
        lines: the lines of the repository that failures name.
        labels: the labels for results; None if the pull request gets no label.
    """

    part: WorkflowPart
    result: str
    revision: str
    report: str
    lines: Sequence[NamedLine] = ()
    labels: ResultLabels | None = None

    @property
    def has_passed(self) -> bool:
        """Whether the job passed."""
        return self.result == "success"

    @property
    def comment(self) -> str:
        """The text of the comment."""
        return comment_texts.ended(self.part, self.result, self.report)

    @property
    def check_runs(self) -> list[dict[str, Any]]:
        """The bodies of the requests for the check run."""
        title = f"{self.part.project} {comment_texts.status(self.result)[1]}"
        return check_run.requests(self.part, self.revision, self.result, title, self.report, self.lines)


def publish(api: Api, pull_request: int, end: RunEnd) -> str:
    """Show the end of a run on a pull request and on its commit, and return the address of the comment.

    Raises:
        InfrastructureError: GitHub refused the comment or the status.
    """
    address = run_comment.publish(api, pull_request, end.part, end.comment)
    run_comment.set_status(api, end.revision, end.part, *comment_texts.status(end.result))
    with _warning("there is no check run with annotations, only the commit status"):
        check_run.publish(api, end.check_runs)
    if end.labels is not None:
        with _warning("the labels of the pull request could not be changed"):
            result_labels.apply(api, pull_request, end.labels, has_passed=end.has_passed)
    return address


def write(directory: Path, end: RunEnd) -> Path:
    """Write what `publish` would send into files, so that another program can send it. Return the directory."""
    state, description = comment_texts.status(end.result)
    status = run_comment.status_content(end.part, state, description)
    contents: dict[str, object] = {STATUS: {"sha": end.revision, **status}, CHECK_RUN: end.check_runs}
    if end.labels is not None:
        added, removed = result_labels.choose(end.labels, has_passed=end.has_passed)
        contents[LABELS] = {"add": [added], "remove": [removed]}
    filesystem.make_directory(directory)
    filesystem.write_text(directory / COMMENT, run_comment.body_of(end.part, end.comment))
    for name, content in contents.items():
        filesystem.write_text(directory / name, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    return directory


@contextmanager
def _warning(problem: str) -> Iterator[None]:
    """Log an error of GitHub as a warning."""
    try:
        yield
    except InfrastructureError as error:
        log.warning("%s: %s", problem, describe(error))
