"""What your own forges import from this feature: the gateway to GitHub, which several CI systems need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from toolbox.ground.system import modules

if TYPE_CHECKING:
    from toolbox.features.ci.github import comment_payload, pull_requests
    from toolbox.features.ci.github.pull_requests import GitHubPullRequests

__all__ = [
    "GitHubPullRequests",
    "comment_payload",
    "pull_requests",
]

# The module of each name: a module is imported when its name is first used.
_HOMES: Final = {
    "comment_payload": "toolbox.features.ci.github:comment_payload",
    "pull_requests": "toolbox.features.ci.github:pull_requests",
    "GitHubPullRequests": "toolbox.features.ci.github.pull_requests:GitHubPullRequests",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used."""
    return modules.public(__name__, _HOMES, name)
