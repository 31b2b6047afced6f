"""The whole test server in this process, with the methods by which tests control it."""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Self

from tests.features.ci.servers.github.account_views import Site
from tests.features.ci.servers.github.api import Api, Recorded
from tests.features.ci.servers.github.faults import Faults
from tests.features.ci.servers.github.http_endpoint import HttpEndpoint
from tests.features.ci.servers.github.state import (
    ACTIONS_BOT,
    NO_COMMIT,
    Account,
    Activity,
    App,
    Artifact,
    CheckRun,
    Comment,
    Issue,
    Label,
    Pull,
    Repository,
    Role,
    State,
    Status,
    Team,
    Token,
    TokenKind,
    WorkflowRun,
)

_ACTIONS_APP: Final = 15368
_ACTIONS_BOT_ID: Final = 41898282
_PREFIXES: Final = {"installation": "ghs_", "fine_grained": "github_pat_", "classic": "ghp_"}


class Server:
    """A test server that answers inside a `with` block. It begins with one repository, which has one commit.

    Args:
        repository: the owner, which is an organization, and the name of the repository.
        is_private: whether only collaborators can see the repository.
        files: the files of the first commit.
    """

    def __init__(
        self,
        repository: str = "owner/name",
        *,
        is_private: bool = False,
        files: Mapping[str, str] | None = None,
    ) -> None:
        self.state = State()
        owner, _, name = repository.partition("/")
        organization = self.state.add_account(owner, "Organization")
        now = self.state.clock.now
        maker = self.state.add_account("github", "Organization")
        app = App(_ACTIONS_APP, "github-actions", "GitHub Actions", maker, now)
        self.bot = self.state.add_account(ACTIONS_BOT, "Bot", account_id=_ACTIONS_BOT_ID, app=app)
        made = Repository(self.state.next_id(), organization, name, is_private, now, now)
        self.repository = self.state.add_repository(made)
        self._push(made, "main", files or {"README.md": "A repository.\n"}, organization, None)
        self._http = HttpEndpoint(lambda address: Api(self.state, Site(address)), self.state.faults)
        self.url = self._http.api.site.api  # as $GITHUB_API_URL has it

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Close all connections."""
        self._http.stop()

    # Faults, limits, time and records

    @property
    def faults(self) -> Faults:
        """The faults of requests."""
        return self.state.faults

    def set_rate_limit(self, token: str, *, remaining: int, resets_in: float = 3600) -> None:
        """Let an account send only some more requests until a number of seconds is over."""
        with self.state.lock:
            budget = self._http.api.budget(self.state.token(token))
            budget.used = budget.limit - remaining
            budget.reset = dt.datetime.now(dt.UTC).timestamp() + resets_in

    @property
    def now(self) -> dt.datetime:
        """The time of the latest change."""
        return self.state.clock.now

    def advance(self, seconds: float) -> None:
        """Move the clock forward."""
        with self.state.lock:
            self.state.clock.tick(self.now + dt.timedelta(seconds=seconds))

    def requests(self, method: str | None = None, path: str = "") -> Sequence[Recorded]:
        """Return all requests, or those with a method and a path that contains a text."""
        with self.state.lock:
            return [one for one in self._http.api.requests if method in (None, one.method) and path in one.path]

    # Accounts

    def add_user(self, login: str, role: str | None = None) -> Account:
        """Add a person, with a role in the repository such as `write` or `triage`; None is no collaborator."""
        with self.state.lock:
            account = self.state.add_account(login)
            if role is not None:
                self.set_role(login, role)
            return account

    def set_role(self, login: str, role: str) -> None:
        """Change the role of a person in the repository."""
        with self.state.lock:
            self.repository.roles[login] = Role[role]

    def add_app(self, slug: str) -> Account:
        """Add an app other than GitHub Actions, and return its bot `SLUG[bot]`."""
        with self.state.lock:
            app = App(self.state.next_id(), slug, slug, self.repository.owner, self.now)
            return self.state.add_account(f"{slug}[bot]", "Bot", app=app)

    def add_team(self, slug: str, *logins: str) -> None:
        """Add a team of the owner of the repository with some members."""
        with self.state.lock:
            owner = self.repository.owner
            team = Team(self.state.next_id(), owner, slug, dict.fromkeys(logins, "member"))
            self.state.teams[owner.login.lower(), slug.lower()] = team

    def add_token(self, login: str = ACTIONS_BOT, **permissions: str) -> str:
        """Return a new token.

        The token of a bot has only the given permissions, such as `issues="write"`. The token of a person may do what
        the person may do, or only what the given permissions allow.
        """
        with self.state.lock:
            account = self.state.account(login)
            kind: TokenKind = "installation" if account.app else "fine_grained" if permissions else "classic"
            text = _PREFIXES[kind] + secrets.token_hex(18)
            self.state.add_token(text, Token(account, kind, {"metadata": "read", **permissions}))
            return text

    # Branches

    def push(
        self,
        branch: str,
        files: Mapping[str, str | bytes | None],
        by: str,
        *,
        repository: str | None = None,
        force: bool = False,
        at: dt.datetime | None = None,
        message: str = "Change files",
    ) -> str:
        """Push one commit to a branch, and return its SHA.

        Args:
            files: the files to change, by path; None removes a file.
            repository: the owner and name; by default the first repository of the server.
            force: whether the commit replaces the latest commit of the branch instead of following it.
            at: the time of the push. By default it is one second after the latest change.
        """
        with self.state.lock:
            place = self._repository(repository)
            return self._push(place, branch, files, self.state.account(by), at, force=force, message=message)

    def _push(
        self,
        repository: Repository,
        branch: str,
        files: Mapping[str, str | bytes | None],
        account: Account,
        at: dt.datetime | None,
        *,
        force: bool = False,
        message: str = "Change files",
    ) -> str:
        time = self.state.clock.tick(at)
        before = repository.branches.get(branch)
        parent = before or repository.branches.get(repository.default_branch)
        parent = self.state.commits[before].parent if force and before else parent
        content = {path: text.encode() if isinstance(text, str) else text for path, text in files.items()}
        commit = self.state.add_commit(parent, content, account, message, time)
        kind = "branch_creation" if before is None else "force_push" if force else "push"
        self._record(repository, branch, kind, (before or NO_COMMIT, commit.sha), account, time)
        repository.branches[branch], repository.pushed = commit.sha, time
        for issue in self._pulls(repository, branch):
            assert issue.pull is not None
            issue.pull.head_sha, issue.updated = commit.sha, time
        return commit.sha

    def delete_branch(self, branch: str, by: str, *, repository: str | None = None) -> None:
        """Delete a branch. Open pull requests from this branch are closed."""
        with self.state.lock:
            place, account, time = self._repository(repository), self.state.account(by), self.state.clock.tick()
            self._record(place, branch, "branch_deletion", (place.branches.pop(branch), NO_COMMIT), account, time)
            for issue in self._pulls(place, branch):
                self._close(issue, account, time)

    def _record(
        self,
        repository: Repository,
        branch: str,
        kind: str,
        change: tuple[str, str],
        account: Account,
        time: dt.datetime,
    ) -> None:
        activity = Activity(self.state.next_id(), f"refs/heads/{branch}", *change, time, kind, account)
        repository.activities.append(activity)

    def _pulls(self, head: Repository, branch: str) -> Sequence[Issue]:
        """Return the open pull requests from a branch."""
        return [
            issue
            for repository in self.state.repositories.values()
            for issue in repository.issues.values()
            if issue.pull and issue.state == "open" and (issue.pull.head, issue.pull.head_branch) == (head, branch)
        ]

    def fork(self, by: str) -> str:
        """Fork the repository, and return the owner and the name of the fork."""
        with self.state.lock:
            parent, account, time = self.repository, self.state.account(by), self.state.clock.tick()
            made = Repository(self.state.next_id(), account, parent.name, parent.is_private, time, time, parent)
            made.branches = dict(parent.branches)
            return self.state.add_repository(made).full_name

    def delete_fork(self, repository: str) -> None:
        """Delete a fork. Its open pull requests stay, and have no repository of the head any more."""
        with self.state.lock:
            fork = self.state.repositories.pop(repository.lower())
            for issue in self.repository.issues.values():
                if issue.pull and issue.pull.head is fork:
                    issue.pull.head = None

    # Issues and pull requests

    def open_issue(self, by: str, title: str = "An issue", body: str = "", labels: Sequence[str] = ()) -> int:
        """Open an issue, and return its number."""
        with self.state.lock:
            return self._open_issue(by, title, body, [self._label(name) for name in labels]).number

    def _open_issue(self, by: str, title: str, body: str, labels: list[Label], pull: Pull | None = None) -> Issue:
        now, account = self.state.clock.tick(), self.state.account(by)
        number = max(self.repository.issues, default=0) + 1
        issue = Issue(self.state.next_id(), number, title, body, account, now, now, labels, app=account.app, pull=pull)
        self.repository.issues[number] = issue
        return issue

    def open_pull_request(
        self,
        branch: str,
        by: str,
        *,
        repository: str | None = None,
        title: str = "Change files",
        body: str = "",
        labels: Sequence[str] = (),
        is_draft: bool = False,
    ) -> int:
        """Open a pull request from a branch of the repository or of a fork to `main`, and return its number."""
        with self.state.lock:
            head, base = self._repository(repository), self.repository
            pull = Pull(
                id=self.state.next_id(),
                head=head,
                head_owner=head.owner,
                head_branch=branch,
                head_sha=head.branches[branch],
                base_branch=base.default_branch,
                base_sha=base.branches[base.default_branch],
                is_draft=is_draft,
            )
            return self._open_issue(by, title, body, [self._label(name) for name in labels], pull).number

    def close(self, number: int, by: str, *, merge: bool = False) -> None:
        """Close an issue or a pull request, or merge a pull request by a new commit of `main`."""
        with self.state.lock:
            issue, account = self.issue(number), self.state.account(by)
            if merge and issue.pull:
                changes = self.state.commits[issue.pull.head_sha].files
                self._push(self.repository, issue.pull.base_branch, changes, account, None, message=issue.title)
                issue.pull.merged, issue.pull.merged_by = self.now, account
            self._close(issue, account, self.state.clock.tick())

    def reopen(self, number: int) -> None:
        """Open a closed issue or pull request again."""
        with self.state.lock:
            issue = self.issue(number)
            issue.state, issue.closed, issue.closed_by, issue.updated = "open", None, None, self.state.clock.tick()

    def _close(self, issue: Issue, account: Account, time: dt.datetime) -> None:
        issue.state, issue.closed, issue.closed_by, issue.updated = "closed", time, account, time
        issue.state_reason = None if issue.pull else "completed"

    def set_draft(self, number: int, *, is_draft: bool) -> None:
        """Convert a pull request to a draft, or mark it as ready for review."""
        with self.state.lock:
            pull = self.issue(number).pull
            assert pull is not None
            pull.is_draft = is_draft

    def lock_conversation(self, number: int) -> None:
        """Let only people with the role `triage` or above comment on an issue."""
        with self.state.lock:
            self.issue(number).is_locked = True

    def add_label(self, number: int, name: str) -> None:
        """Add a label to an issue or a pull request."""
        with self.state.lock:
            self.issue(number).labels.append(self._label(name))

    def _label(self, name: str) -> Label:
        label = Label(self.state.next_id(), name, "ededed", None)
        return self.repository.labels.setdefault(name.lower(), label)

    # Comments

    def comment(self, number: int, by: str, body: str, *, at: dt.datetime | None = None) -> int:
        """Comment on an issue or a pull request, and return the id of the comment."""
        with self.state.lock:
            issue, account, now = self.issue(number), self.state.account(by), self.state.clock.tick(at)
            comment = Comment(self.state.next_id(), issue, account, body, now, now, account.app)
            self.repository.comments[comment.id] = comment
            issue.updated = now
            return comment.id

    def edit_comment(self, comment: int, body: str) -> None:
        """Change the body of a comment."""
        with self.state.lock:
            edited = self.repository.comments[comment]
            edited.previous_body, edited.body, edited.updated = edited.body, body, self.state.clock.tick()

    def delete_comment(self, comment: int) -> Comment:
        """Delete a comment, and return it, because the event of the deletion describes it."""
        with self.state.lock:
            self.state.clock.tick()
            return self.repository.comments.pop(comment)

    # Runs of workflows

    def start_workflow(self, workflow: str, event: str, by: str, *, sha: str = "", branch: str = "main") -> int:
        """Start a run of a workflow, and return its id."""
        with self.state.lock:
            place, now, account = self.repository, self.state.clock.tick(), self.state.account(by)
            sha, number = sha or place.branches[branch], self.state.next_id()
            count = sum(run.workflow == workflow for run in place.workflow_runs.values())
            run = WorkflowRun(number, count + 1, workflow, event, branch, sha, account, now, now)
            place.workflow_runs[number] = run
            return number

    def finish_workflow(self, run: int, conclusion: str = "success") -> None:
        """End a run of a workflow."""
        with self.state.lock:
            finished = self.repository.workflow_runs[run]
            finished.status, finished.conclusion = "completed", conclusion
            finished.updated = self.state.clock.tick()

    def add_artifact(self, run: int, name: str, content: bytes, *, is_expired: bool = False) -> int:
        """Add an artifact to a run of a workflow, and return the id of the artifact."""
        with self.state.lock:
            artifact = Artifact(self.state.next_id(), name, content, self.state.clock.tick(), is_expired)
            self.repository.workflow_runs[run].artifacts.append(artifact)
            return artifact.id

    # What the repository has

    def issue(self, number: int) -> Issue:
        """Return an issue or a pull request."""
        return self.repository.issues[number]

    def comments(self, number: int) -> Sequence[Comment]:
        """Return the comments on an issue or a pull request, the oldest first."""
        with self.state.lock:
            return [one for one in self.repository.comments.values() if one.issue.number == number]

    def check_runs(self, sha: str) -> Sequence[CheckRun]:
        """Return all check runs of a commit, the oldest first."""
        with self.state.lock:
            return [one for one in self.repository.check_runs.values() if one.head_sha == sha]

    def statuses(self, sha: str) -> Sequence[Status]:
        """Return all statuses of a commit, the oldest first."""
        with self.state.lock:
            return [one for one in self.repository.statuses if one.sha == sha]

    def _repository(self, full_name: str | None) -> Repository:
        return self.state.repositories[full_name.lower()] if full_name else self.repository


@contextmanager
def serving(repository: str = "owner/name", **settings: Any) -> Iterator[Server]:
    """Run a server."""
    with Server(repository, **settings) as server:
        yield server
