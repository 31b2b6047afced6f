"""The data of the server: accounts, repositories with their commits, issues and comments, and what CI reports.

Tests change the data through `Server`, and clients through the endpoints. Both hold `State.lock`. The views describe
the data as JSON.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import itertools
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, Literal

from tests.features.ci.servers.github.faults import Faults

NO_COMMIT: Final = "0" * 40
ACTIONS_BOT: Final = "github-actions[bot]"
_START: Final = dt.datetime(2026, 11, 23, 5, 0, tzinfo=dt.UTC)

AccountKind = Literal["User", "Bot", "Organization"]
TokenKind = Literal["installation", "fine_grained", "classic"]


class Role(IntEnum):
    """The role of a person in a repository, the weakest first."""

    none = 0
    read = 1
    triage = 2
    write = 3
    maintain = 4
    admin = 5


class Clock:
    """The time of the server. Each change takes one second, so that no two changes have the same time."""

    def __init__(self) -> None:
        self.now = _START

    def tick(self, at: dt.datetime | None = None) -> dt.datetime:
        """Return the time of a change, which is the given time or one second after the last change.

        The clock never goes back: a change at an earlier time leaves the clock as it is.
        """
        time = at or self.now + dt.timedelta(seconds=1)
        self.now = max(self.now, time)
        return time


@dataclass(slots=True, eq=False)
class App:
    """A GitHub App, which owns the check runs that it creates."""

    id: int
    slug: str
    name: str
    owner: Account
    created: dt.datetime


@dataclass(slots=True, eq=False)
class Account:
    """A person, a bot or an organization."""

    id: int
    login: str
    kind: AccountKind = "User"
    app: App | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Token:
    """A token, without its text.

    Args:
        permissions: the level of each permission, such as `{"issues": "write"}`. A classic token has none: it may do
            what its person may do.
    """

    account: Account
    kind: TokenKind
    permissions: Mapping[str, str] = field(default_factory=dict)

    def allows(self, permission: str, level: str) -> bool:
        """Return whether the token has a permission at a level or above."""
        levels = ("none", "read", "write")
        return self.kind == "classic" or levels.index(self.permissions.get(permission, "none")) >= levels.index(level)


@dataclass(slots=True, eq=False)
class Team:
    """A team of an organization: the members, by login, have the role `member` or `maintainer`."""

    id: int
    organization: Account
    slug: str
    members: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Commit:
    """A commit with all files of its tree."""

    sha: str
    message: str
    author: Account
    time: dt.datetime
    files: Mapping[str, bytes]
    parent: str | None


@dataclass(frozen=True, slots=True)
class Activity:
    """A change of a branch."""

    id: int
    ref: str
    before: str
    after: str
    time: dt.datetime
    kind: str
    account: Account


@dataclass(slots=True, eq=False)
class Label:
    """A label of a repository."""

    id: int
    name: str
    color: str
    description: str | None


@dataclass(slots=True, eq=False)
class Reaction:
    """A reaction to a comment."""

    id: int
    account: Account
    content: str
    created: dt.datetime


@dataclass(slots=True, eq=False)
class Comment:
    """A comment on an issue or a pull request.

    Args:
        app: the app whose token created the comment.
        previous_body: the body before the last edit.
    """

    id: int
    issue: Issue
    author: Account
    body: str
    created: dt.datetime
    updated: dt.datetime
    app: App | None = None
    previous_body: str | None = None
    reactions: list[Reaction] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Pull:
    """The part of a pull request that an issue does not have.

    Args:
        head: the repository of the head; None if it was deleted.
        head_sha: the latest commit that was pushed while the pull request was open.
        base_sha: the commit of the base branch when the pull request was opened.
    """

    id: int
    head: Repository | None
    head_owner: Account
    head_branch: str
    head_sha: str
    base_branch: str
    base_sha: str
    is_draft: bool = False
    merged: dt.datetime | None = None
    merged_by: Account | None = None


@dataclass(slots=True, eq=False)
class Issue:
    """An issue, or a pull request if `pull` is given."""

    id: int
    number: int
    title: str
    body: str | None
    author: Account
    created: dt.datetime
    updated: dt.datetime
    labels: list[Label] = field(default_factory=list)
    state: Literal["open", "closed"] = "open"
    state_reason: str | None = None
    closed: dt.datetime | None = None
    closed_by: Account | None = None
    is_locked: bool = False
    app: App | None = None
    pull: Pull | None = None


@dataclass(slots=True, eq=False)
class CheckRun:
    """A check run. `output` has the title, the summary and the text; annotations are only appended."""

    id: int
    suite: int
    head_sha: str
    app: App
    name: str
    status: str = "queued"
    conclusion: str | None = None
    details_url: str | None = None
    external_id: str = ""
    started: dt.datetime | None = None
    completed: dt.datetime | None = None
    output: dict[str, str | None] = field(default_factory=dict)
    annotations: list[Mapping[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class Status:
    """A status of a commit."""

    id: int
    sha: str
    state: str
    context: str
    description: str | None
    target_url: str | None
    creator: Account
    created: dt.datetime


@dataclass(frozen=True, slots=True, eq=False)
class Artifact:
    """An artifact that a run of a workflow uploaded."""

    id: int
    name: str
    content: bytes
    created: dt.datetime
    is_expired: bool = False


@dataclass(slots=True, eq=False)
class WorkflowRun:
    """A run of a workflow of GitHub Actions."""

    id: int
    number: int
    workflow: str
    event: str
    head_branch: str
    head_sha: str
    actor: Account
    created: dt.datetime
    updated: dt.datetime
    attempt: int = 1
    status: str = "in_progress"
    conclusion: str | None = None
    artifacts: list[Artifact] = field(default_factory=list)

    @property
    def path(self) -> str:
        """The path of the workflow file."""
        return f".github/workflows/{self.workflow}.yml"


@dataclass(slots=True, eq=False)
class Repository:
    """A repository. The keys of `labels` are in lower case, because the names of labels ignore it.

    Args:
        parent: the repository of which this one is a fork.
        roles: the role of each collaborator, by login.
    """

    id: int
    owner: Account
    name: str
    is_private: bool
    created: dt.datetime
    pushed: dt.datetime
    parent: Repository | None = None
    default_branch: str = "main"
    roles: dict[str, Role] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    activities: list[Activity] = field(default_factory=list)
    labels: dict[str, Label] = field(default_factory=dict)
    issues: dict[int, Issue] = field(default_factory=dict)
    comments: dict[int, Comment] = field(default_factory=dict)
    check_runs: dict[int, CheckRun] = field(default_factory=dict)
    statuses: list[Status] = field(default_factory=list)
    workflow_runs: dict[int, WorkflowRun] = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        """The owner and the name."""
        return f"{self.owner.login}/{self.name}"

    def role_of(self, account: Account) -> Role:
        """Return the role of an account; a public repository can be read by all accounts."""
        weakest = Role.none if self.is_private else Role.read
        role = Role.admin if account is self.owner else self.roles.get(account.login, Role.none)
        return max(weakest, role)


class State:
    """All data of a server."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.clock = Clock()
        self.faults = Faults()
        self.accounts: dict[str, Account] = {}
        self.teams: dict[tuple[str, str], Team] = {}
        self.tokens: dict[str, Token] = {}
        self.commits: dict[str, Commit] = {}
        self.repositories: dict[str, Repository] = {}
        self._ids = itertools.count(1001)

    def next_id(self) -> int:
        """Return an id that no other object has."""
        return next(self._ids)

    def find_account(self, login: str) -> Account | None:
        """Return an account; logins ignore the case."""
        return self.accounts.get(login.lower())

    def account(self, login: str) -> Account:
        """Return an account that must exist."""
        found = self.find_account(login)
        if found is None:
            raise LookupError(f"the server has no account {login}: add it with `add_user`")
        return found

    def add_account(
        self, login: str, kind: AccountKind = "User", *, account_id: int | None = None, app: App | None = None
    ) -> Account:
        """Add an account."""
        account = Account(account_id or self.next_id(), login, kind, app)
        self.accounts[login.lower()] = account
        return account

    def add_token(self, text: str, token: Token) -> None:
        """Accept a token, whose text is not stored."""
        self.tokens[_digest(text)] = token

    def token(self, text: str) -> Token | None:
        """Return the token with a text, or None."""
        return self.tokens.get(_digest(text))

    def add_repository(self, repository: Repository) -> Repository:
        """Add a repository."""
        self.repositories[repository.full_name.lower()] = repository
        return repository

    def add_commit(
        self, parent: str | None, files: Mapping[str, bytes | None], author: Account, message: str, time: dt.datetime
    ) -> Commit:
        """Add a commit that changes files of its parent; None removes a file."""
        tree = dict(self.commits[parent].files) if parent else {}
        tree |= {path: content for path, content in files.items() if content is not None}
        for path in [path for path, content in files.items() if content is None]:
            del tree[path]
        sha = object_id("commit", f"{parent} {len(self.commits)} {author.login} {time} {message}".encode())
        commit = Commit(sha, message, author, time, tree, parent)
        self.commits[sha] = commit
        return commit

    def history(self, sha: str) -> Iterator[Commit]:
        """Yield a commit and all its ancestors, the newest first."""
        current: str | None = sha
        while current:
            commit = self.commits[current]
            yield commit
            current = commit.parent

    def merge_base(self, base: str, head: str) -> str | None:
        """Return the newest commit that two commits have in common."""
        ancestors = {commit.sha for commit in self.history(base)}
        return next((commit.sha for commit in self.history(head) if commit.sha in ancestors), None)


def object_id(kind: str, content: bytes) -> str:
    """Return the id that git gives to an object: https://git-scm.com/book/en/v2/Git-Internals-Git-Objects."""
    return hashlib.sha1(f"{kind} {len(content)}\0".encode() + content).hexdigest()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
