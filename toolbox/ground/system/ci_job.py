"""The job of a CI system that this process is a part of, from the environment variables of the system.

GitHub Actions, GitLab, Jenkins and Prow (OpenShift CI) are known. The values may come from other people, for example as
the name of a branch: they have a limited length and no control characters.
"""

from __future__ import annotations

import re
from typing import Final

from toolbox.ground.model.foreign_text import clean
from toolbox.ground.model.text import truncate
from toolbox.ground.system import environ

_JOB_NAMES: Final = ("JOB_NAME", "CI_JOB_NAME", "GITHUB_JOB")  # Jenkins and Prow, GitLab, GitHub
_URLS: Final = ("BUILD_URL", "CI_JOB_URL")  # Jenkins, GitLab
_LONGEST: Final = 300
_URL: Final = re.compile(r"https?://[^\s\x00-\x1f\x7f-\x9f\"'<>|`\\]+")
_WORKFLOW: Final = "GITHUB_WORKFLOW"


def is_automated() -> bool:
    """Return whether a CI system executes this process."""
    return environ.get("CI") in {"1", "true", "True"} or environ.get("BUILD_URL") is not None


def name() -> str:
    """Return the name of the job; empty if there is no job."""
    return next((_line(value) for variable in _JOB_NAMES if (value := environ.get(variable))), "")


def series() -> str:
    """Return the workflow and the job, which are the same in all runs of a series; empty if there is no job."""
    return " / ".join(filter(None, (_line(environ.get(_WORKFLOW) or ""), name())))


def url() -> str:
    """Return the address of the page of the job; empty if it is unknown."""
    server, repository, run = (environ.get(f"GITHUB_{name}") for name in ("SERVER_URL", "REPOSITORY", "RUN_ID"))
    github = f"{server}/{repository}/actions/runs/{run}" if server and repository and run else ""
    urls = [github, *(environ.get(name) or "" for name in _URLS)]
    return next((url for url in urls if len(url) <= _LONGEST and _URL.fullmatch(url)), "")


def _line(text: str) -> str:
    return truncate(" ".join(clean(text).split()), _LONGEST)
