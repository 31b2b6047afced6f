"""What a forge tells about a comment, and what it is told about a run. See `extensions.protocols.Forge`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from toolbox.ground.model.text import counted, first_of

_MAX_STEPS: Final = 3  # names of steps in a text


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
        description: the description of the pull request at the time of the event; empty if the event does not have it.
    """

    text: str
    author: str = ""
    pull_request: int | None = None
    id: int = 0
    created: dt.datetime | None = None
    action: CommentAction = CommentAction.CREATED
    revision: str | None = None
    job: str | None = None
    description: str = ""


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


@dataclass(frozen=True, slots=True)
class NamedLine:
    """A line of the repository that a failure names.

    Args:
        path: the path of the file, relative to the repository.
        text: the line of the log or of the message that names it.
        steps: the names of the steps whose failures name it.
        is_failure: whether one of the steps failed the run.
    """

    path: str
    line: int
    text: str
    steps: tuple[str, ...]
    is_failure: bool

    @property
    def title(self) -> str:
        """The steps whose failures name the line."""
        return f"{counted(len(self.steps), 'failed step')}: {', '.join(first_of(self.steps, _MAX_STEPS))}"


@dataclass(frozen=True, slots=True)
class CommitReport:
    """A report about a run that a forge shows on the tested commit.

    Args:
        revision: the tested commit.
        name: the name of the report, which differs from that of the commit status.
        key: identifies the run.
        title: how the run ended, in a few words.
        result: the result of the job that ran the project: `success`, `failure`, `cancelled` or `skipped`.
        text: the report as Markdown; empty if there is none.
        url: the page of the run.
        lines: the lines of the repository that failures name.
    """

    revision: str
    name: str
    key: str
    title: str
    result: str
    text: str
    url: str
    lines: Sequence[NamedLine] = ()


@dataclass(frozen=True, slots=True)
class ResultLabel:
    """The label of a pull request for the result of its latest run.

    Args:
        name: the label to add.
        is_pass: whether the run passed.
        other: the label for the other result, which is removed.
    """

    name: str
    is_pass: bool
    other: str
