"""Shows the report of a workflow run and the lines that failures name on the tested commit, as a check run.

The check run has another name than the commit status. A rule of a branch names the status, which exists from the
beginning of the run, so it is never ambiguous which of the two is required.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from toolbox.ci.github_api import Api, mapping
from toolbox.ci.run_comment import WorkflowPart, repeated
from toolbox.model.errors import InfrastructureError
from toolbox.model.text import truncate
from toolbox.reports.forge.source_locations import NamedLine

MOST_ANNOTATIONS: Final = 50  # of a request
LONGEST_OUTPUT: Final = 65_535  # characters of the title, of the summary and of the text
_LONGEST_TITLE: Final = 255
_CONCLUSIONS: Final = {
    "success": "success",
    "failure": "failure",
    "cancelled": "cancelled",
    "skipped": "cancelled",  # GitHub would take `skipped` for a pass
}


def requests(
    part: WorkflowPart, revision: str, result: str, title: str, report: str, lines: Sequence[NamedLine]
) -> list[dict[str, Any]]:
    """Return the bodies of the request that creates the check run, and of those that add further annotations.

    Args:
        result: the result of the job that ran the project.
        title: how the run ended, in a few words.
        report: the report as Markdown; empty if there is none.
    """
    texts = {
        "title": truncate(title, _LONGEST_TITLE),
        "summary": report if 0 < len(report) <= LONGEST_OUTPUT else f"See the [workflow run]({part.url}).",
    }
    annotations = list(map(_annotation, lines))
    first, rest = annotations[:MOST_ANNOTATIONS], annotations[MOST_ANNOTATIONS:]
    groups = [rest[begin : begin + MOST_ANNOTATIONS] for begin in range(0, len(rest), MOST_ANNOTATIONS)]
    created = {
        "name": f"{part.project} {part.workflow} report",
        "head_sha": revision,
        "details_url": part.url,
        "external_id": part.marker,
        "status": "completed",
        "conclusion": _CONCLUSIONS[result],
        "output": {**texts, "annotations": first},
    }
    return [created, *({"output": {**texts, "annotations": group}} for group in groups)]


def publish(api: Api, bodies: Sequence[Mapping[str, Any]]) -> None:
    """Create a check run, and add its further annotations.

    If the answer to the first request is lost, there may be two check runs with the same name: GitHub shows the newest.

    Raises:
        InfrastructureError: GitHub refused a request. The job needs the permission `checks: write`.
    """
    created = mapping(repeated(lambda: api.send("POST", "check-runs", bodies[0])))
    if not isinstance(number := created.get("id"), int):
        raise InfrastructureError("GitHub created a check run, but did not return its number")
    for body in bodies[1:]:
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
