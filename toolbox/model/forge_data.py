"""What a forge tells about a comment, and what it is told about a run. See `extensions.protocols.Forge`."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from enum import StrEnum


class CommentAction(StrEnum):
    """What happened to a comment."""

    CREATED = "created"
    EDITED = "edited"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class CommentEvent:
    """The comment that started a job.

    Args:
        author: the login of the author.
        pull_request: the number of the pull request; None if a person started the job by hand, and the CI system has
            checked that the person may do this.
        id: the number of the comment on the forge.
        created: when the comment was created; None if there is no pull request.
        revision: the revision that the CI system has pinned for the job; None if it pins no revision.
        job: the name by which `/test JOB` addresses this job, if the comment may also contain commands for other jobs
            and programs; None if all of its commands are for this job.
    """

    text: str
    author: str = ""
    pull_request: int | None = None
    id: int = 0
    created: dt.datetime | None = None
    action: CommentAction = CommentAction.CREATED
    revision: str | None = None
    job: str | None = None


@dataclass(frozen=True, slots=True)
class Commenters:
    """Whose comments may start runs: the accounts to which any of these rules applies.

    Args:
        write_access: people who may push to the repository.
        teams: `ORGANIZATION/TEAM` on GitHub, the path of a group on GitLab.
        owners_file: the path of an OWNERS file on the base branch; None for no file.
    """

    write_access: bool = True
    teams: tuple[str, ...] = ()
    owners_file: str | None = None


@dataclass(frozen=True, slots=True)
class PostedComment:
    """A comment on a pull request.

    Args:
        author: the login of the author.
    """

    id: int
    author: str
    text: str


class CommitState(StrEnum):
    """The state of a commit status, in the words of GitHub."""

    PENDING = "pending"
    SUCCESS = "success"
    FAILURE = "failure"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class CommitStatus:
    """A status of a commit.

    Args:
        context: the name of the status. A later status with the same name replaces it.
        url: the page of the run.
    """

    state: CommitState
    context: str
    description: str
    url: str


@dataclass(frozen=True, slots=True)
class CiRun:
    """A run of a CI system, which may have several jobs.

    Args:
        id: identifies the run on the CI system: at most 200 letters, digits, `.`, `_` and `-`.
        url: the page of the run; empty if there is none.
    """

    id: str
    url: str
