"""Labels a pull request with the result of its latest run: one label for a pass, and one for anything else."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from toolbox.features.ci.github.github_api import Api, segment
from toolbox.ground.model.errors import RefusedRequest
from toolbox.ground.model.forge_data import ResultLabel

_GREEN: Final = "0e8a16"
_RED: Final = "d93f0b"
_DESCRIPTION: Final = "the result of the latest run of Topgallant"


def apply(api: Api, pull_request: int, label: ResultLabel) -> None:
    """Add the label for the result, and remove the other one. A label that does not exist is created.

    Raises:
        InfrastructureError: GitHub refused a request.
    """
    _ensure(api, label.name, _GREEN if label.is_pass else _RED)
    api.send("POST", f"issues/{pull_request}/labels", {"labels": [label.name]})
    _ignoring_missing(api, "DELETE", f"issues/{pull_request}/labels/{segment(label.other)}")


def _ensure(api: Api, name: str, color: str) -> None:
    """Create a label if the repository does not have it. Another job may create the label at the same time."""
    try:
        api.get(f"labels/{segment(name)}")
    except RefusedRequest as refusal:
        if refusal.status != HTTPStatus.NOT_FOUND:
            raise
        try:
            api.send("POST", "labels", {"name": name, "color": color, "description": _DESCRIPTION})
        except RefusedRequest as second:
            if second.status != HTTPStatus.UNPROCESSABLE_ENTITY:
                raise


def _ignoring_missing(api: Api, method: str, path: str) -> None:
    try:
        api.send(method, path, {})
    except RefusedRequest as refusal:
        if refusal.status != HTTPStatus.NOT_FOUND:
            raise
