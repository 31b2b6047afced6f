"""Keeps one issue for a workflow: opened when the workflow fails, updated while it fails, closed when it passes.

The issue is found by its label, by its author, and by a marker in the first line of its body. People can create issues
with any text, and an issue form can add a label, so the author must be the bot of GitHub Actions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from toolbox.features.ci.github.github_api import Api, mapping
from toolbox.ground.model.errors import InfrastructureError

LABEL: Final = "topgallant"
_AUTHOR: Final = "github-actions[bot]"
_MAX_ISSUES: Final = 100
_LONGEST_BODY: Final = 1 << 16
_MARKER = re.compile(r"<!-- topgallant-ci: (?P<name>\S+) failures=(?P<failures>\d{1,6}) -->\r?(?:\n|$)")
_COLOR: Final = "b60205"


class Result(StrEnum):
    """The result of a job, in the words of GitHub."""

    SUCCESS = "success"
    FAILURE = "failure"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"


_WORDS: Final = {
    Result.FAILURE: "failed",
    Result.CANCELLED: "was cancelled, or exceeded its time limit",
}


@dataclass(frozen=True, slots=True)
class WorkflowRun:
    """A run of a workflow.

    Args:
        workflow: the name of the workflow in the configuration.
        url: the page of the run.
        revision: the revision of the workflow.
        details: a report of the run as Markdown; empty if there is none.
    """

    project: str
    workflow: str
    result: Result
    url: str
    revision: str
    details: str = ""


def update(api: Api, run: WorkflowRun) -> str:
    """Open, update or close the issue of a workflow, and return a sentence that says what was done.

    Raises:
        InfrastructureError: GitHub refused a request.
    """
    if run.result is Result.SKIPPED:
        return f"the workflow {run.workflow} was skipped: its issue stays as it is"
    issues = _open_issues(api, _name(run))
    if run.result is Result.SUCCESS:
        return _close(api, run, issues)
    if issues:
        return _update(api, run, issues[0])
    return _open(api, run)


def _open(api: Api, run: WorkflowRun) -> str:
    _ensure_label(api)
    body = _body(run, failures=1)
    title = f"{run.project}: the workflow {run.workflow} fails"
    issue = mapping(api.send("POST", "issues", {"title": title, "body": body, "labels": [LABEL]}))
    return f"opened issue #{issue.get('number')}"


def _update(api: Api, run: WorkflowRun, issue: Mapping[str, Any]) -> str:
    number, failures = int(issue["number"]), _failures(issue) + 1
    api.send("PATCH", f"issues/{number}", {"body": _body(run, failures=failures)})
    return f"updated issue #{number}: {failures} failures in a row"


def _close(api: Api, run: WorkflowRun, issues: list[Mapping[str, Any]]) -> str:
    for issue in issues:
        number = int(issue["number"])
        text = f"The workflow `{run.workflow}` passed at {run.revision}: {run.url}"
        api.send("POST", f"issues/{number}/comments", {"body": text})
        api.send("PATCH", f"issues/{number}", {"state": "closed", "state_reason": "completed"})
    numbers = ", ".join(f"#{issue['number']}" for issue in issues)
    return f"closed issue {numbers}" if issues else "the workflow passed, and has no open issue"


def _open_issues(api: Api, name: str) -> list[Mapping[str, Any]]:
    """Return the open issues of a workflow, the oldest first. There are several only if two runs ended together."""
    answer = api.get("issues", labels=LABEL, state="open", creator=_AUTHOR, per_page=_MAX_ISSUES)
    if not isinstance(answer, list):
        raise InfrastructureError("GitHub answered the request for issues with a value that is not a list")
    issues = [issue for issue in map(mapping, answer) if _is_of(issue, name)]
    return sorted(issues, key=lambda issue: int(issue["number"]))


def _is_of(issue: Mapping[str, Any], name: str) -> bool:
    match = _MARKER.match(issue.get("body") or "")
    is_issue = "pull_request" not in issue and mapping(issue.get("user")).get("login") == _AUTHOR
    return is_issue and match is not None and match["name"] == name


def _failures(issue: Mapping[str, Any]) -> int:
    match = _MARKER.match(issue.get("body") or "")
    return int(match["failures"]) if match else 0


def _body(run: WorkflowRun, *, failures: int) -> str:
    times = "once" if failures == 1 else f"{failures} times in a row"
    head = "\n".join(
        [
            f"<!-- topgallant-ci: {_name(run)} failures={failures} -->",
            f"The workflow `{run.workflow}` of the project `{run.project}` did not pass {times}.",
            "",
            f"The latest run {_WORDS[run.result]}, at {run.revision}: {run.url}",
            "",
            "Topgallant updates this issue while the workflow fails, and closes it when the workflow passes.",
            "",
        ]
    )
    fits = len(head) + len(run.details) < _LONGEST_BODY
    return f"{head}\n{run.details}" if fits and run.details else head


def _name(run: WorkflowRun) -> str:
    return f"{run.project}/{run.workflow}"


def _ensure_label(api: Api) -> None:
    """Create the label if the repository does not have it: without the label, the next run would not find the issue."""
    try:
        api.get(f"labels/{LABEL}")
    except InfrastructureError:
        content = {"name": LABEL, "color": _COLOR, "description": "opened and closed by the workflows of Topgallant"}
        api.send("POST", "labels", content)
