"""Labels a pull request with the result of its latest run: one label for a pass, and one for anything else."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from toolbox.ci.github_api import Api, Refusal, segment
from toolbox.config.contracts.ci import ResultLabels

_GREEN: Final = "0e8a16"
_RED: Final = "d93f0b"
_DESCRIPTION: Final = "the result of the latest run of Topgallant"


def choose(labels: ResultLabels, *, has_passed: bool) -> tuple[str, str]:
    """Return the label to add and the label to remove."""
    return (labels.passed, labels.failed) if has_passed else (labels.failed, labels.passed)


def apply(api: Api, pull_request: int, labels: ResultLabels, *, has_passed: bool) -> None:
    """Add the label for the result, and remove the other one. A label that does not exist is created.

    Raises:
        InfrastructureError: GitHub refused a request.
    """
    added, removed = choose(labels, has_passed=has_passed)
    _ensure(api, added, _GREEN if has_passed else _RED)
    api.send("POST", f"issues/{pull_request}/labels", {"labels": [added]})
    _ignoring_missing(api, "DELETE", f"issues/{pull_request}/labels/{segment(removed)}")


def _ensure(api: Api, name: str, color: str) -> None:
    """Create a label if the repository does not have it. Another job may create the label at the same time."""
    try:
        api.get(f"labels/{segment(name)}")
    except Refusal as refusal:
        if refusal.status != HTTPStatus.NOT_FOUND:
            raise
        try:
            api.send("POST", "labels", {"name": name, "color": color, "description": _DESCRIPTION})
        except Refusal as second:
            if second.status != HTTPStatus.UNPROCESSABLE_ENTITY:
                raise


def _ignoring_missing(api: Api, method: str, path: str) -> None:
    try:
        api.send(method, path, {})
    except Refusal as refusal:
        if refusal.status != HTTPStatus.NOT_FOUND:
            raise
