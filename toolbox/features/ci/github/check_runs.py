"""Shows the report of a workflow run and the lines that failures name on the tested commit, as a check run.

The check run has another name than the commit status. A rule of a branch names the status, which exists from the
beginning of the run, so it is never ambiguous which of the two is required.
"""

from __future__ import annotations

from typing import Any, Final

from toolbox.features.ci.github.github_api import Api, mapping
from toolbox.ground.model.errors import InfrastructureError
from toolbox.ground.model.forge_data import CommitReport, NamedLine
from toolbox.ground.model.text import truncate

MAX_ANNOTATIONS: Final = 50  # of a request
LONGEST_OUTPUT: Final = 65_535  # characters of the title, of the summary and of the text
_LONGEST_TITLE: Final = 255
_CONCLUSIONS: Final = {
    "success": "success",
    "failure": "failure",
    "cancelled": "cancelled",
    "skipped": "cancelled",  # GitHub would take `skipped` for a pass
}


def requests(report: CommitReport) -> list[dict[str, Any]]:
    """Return the bodies of the request that creates the check run, and of those that add further annotations."""
    texts = {
        "title": truncate(report.title, _LONGEST_TITLE),
        "summary": report.text if 0 < len(report.text) <= LONGEST_OUTPUT else f"See the [workflow run]({report.url}).",
    }
    annotations = list(map(_annotation, report.lines))
    first, rest = annotations[:MAX_ANNOTATIONS], annotations[MAX_ANNOTATIONS:]
    groups = [rest[begin : begin + MAX_ANNOTATIONS] for begin in range(0, len(rest), MAX_ANNOTATIONS)]
    created = {
        "name": report.name,
        "head_sha": report.revision,
        "details_url": report.url,
        "external_id": report.key,
        "status": "completed",
        "conclusion": _CONCLUSIONS[report.result],
        "output": {**texts, "annotations": first},
    }
    return [created, *({"output": {**texts, "annotations": group}} for group in groups)]


def publish(api: Api, report: CommitReport) -> None:
    """Create a check run, and add its further annotations.

    If the request is repeated, there may be two check runs with the same name: GitHub shows the newest.

    Raises:
        InfrastructureError: GitHub refused a request. The job needs the permission `checks: write`.
    """
    first, *others = requests(report)
    created = mapping(api.send("POST", "check-runs", first))
    if not isinstance(number := created.get("id"), int):
        raise InfrastructureError("GitHub created a check run, but did not return its number")
    for body in others:
        api.send("PATCH", f"check-runs/{number}", body)


def _annotation(line: NamedLine) -> dict[str, Any]:
    return {
        "path": line.path,
        "start_line": line.line,
        "end_line": line.line,
        "annotation_level": "failure" if line.is_failure else "warning",
        "title": truncate(line.title, _LONGEST_TITLE),
        "message": line.text or line.title,
    }
