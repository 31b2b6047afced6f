"""The data of the server: users, groups, merge requests with their versions and notes, pipelines and statuses."""

from __future__ import annotations

import datetime as dt
import itertools
import threading
from dataclasses import dataclass, field
from typing import Final

from tests.features.ci.servers.github.faults import Faults

GUEST: Final = 10
REPORTER: Final = 20
DEVELOPER: Final = 30
MAINTAINER: Final = 40
PROJECT: Final = 7
PATH: Final = "group/name"
_START: Final = dt.datetime(2026, 11, 23, 5, 0, 0, 250_000, tzinfo=dt.UTC)


@dataclass(slots=True, eq=False)
class User:
    """A person or a bot."""

    id: int
    username: str
    state: str = "active"


@dataclass(frozen=True, slots=True)
class Token:
    """A token, without its text."""

    user: User
    scope: str


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a merge request, which a push to its branch made."""

    id: int
    head: str
    created: dt.datetime


@dataclass(slots=True, eq=False)
class Note:
    """A comment on a merge request."""

    id: int
    author: User
    body: str
    created: dt.datetime
    updated: dt.datetime


@dataclass(slots=True, eq=False)
class MergeRequest:
    """A merge request."""

    iid: int
    author: User
    source_branch: str
    target_branch: str
    source_project: int
    state: str = "opened"
    versions: list[Version] = field(default_factory=list)
    notes: dict[int, Note] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Status:
    """A status of a commit."""

    id: int
    sha: str
    name: str
    state: str
    description: str | None
    target_url: str | None
    author: User


class State:
    """All data of a server, which has one project."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.faults = Faults()
        self.now = _START
        self.users: dict[str, User] = {}
        self.levels: dict[int, int] = {}
        self.groups: dict[str, dict[int, int]] = {}
        self.tokens: dict[str, Token] = {}
        self.branches: dict[str, str] = {}
        self.files: dict[str, dict[str, str]] = {}
        self.merge_requests: dict[int, MergeRequest] = {}
        self.pipelines: dict[int, str] = {}
        self.statuses: list[Status] = []
        self._ids = itertools.count(1001)

    def next_id(self) -> int:
        """Return an id that no other object has."""
        return next(self._ids)

    def tick(self) -> dt.datetime:
        """Return the time of a change, two seconds after the last change."""
        self.now += dt.timedelta(seconds=2)
        return self.now
