"""The whole test server in this process, with the methods by which tests control it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tests.features.ci.servers.github.faults import Faults
from tests.features.ci.servers.github.http_endpoint import HttpEndpoint
from tests.features.ci.servers.gitlab.gitlab_endpoints import Api, Recorded
from tests.features.ci.servers.gitlab.gitlab_state import (
    PATH,
    PROJECT,
    MergeRequest,
    Note,
    State,
    Status,
    Token,
    User,
    Version,
)

_FORK = 8


class Server:
    """A test server that answers until `stop` is called. It begins with one project, which has the branch `main`."""

    def __init__(self) -> None:
        self.state = State()
        self._http = HttpEndpoint(lambda address: Api(self.state, address), self.state.faults, "nginx")
        self.url = f"{self._http.api.base}/api/v4"  # as $CI_API_V4_URL has it
        self.project = PROJECT
        self.push("main", {"README.md": "A project.\n"}, by="")

    def stop(self) -> None:
        """Close all connections."""
        self._http.stop()

    @property
    def faults(self) -> Faults:
        """The faults of requests."""
        return self.state.faults

    def requests(self, method: str | None = None, path: str = "") -> Sequence[Recorded]:
        """Return all requests, or those with a method and a path that contains a text."""
        with self.state.lock:
            return [one for one in self._http.api.requests if method in (None, one.method) and path in one.path]

    def add_user(self, username: str, level: int | None = None) -> User:
        """Add a person, with an access level in the project; None is no member."""
        with self.state.lock:
            user = self.state.users.setdefault(username, User(self.state.next_id(), username))
            if level is not None:
                self.state.levels[user.id] = level
            return user

    def add_group(self, path: str, *usernames: str, level: int = 20) -> None:
        """Add a group with some members."""
        with self.state.lock:
            self.state.groups[path] = {self.state.users[username].id: level for username in usernames}

    def add_token(self, username: str, level: int, scope: str = "api") -> str:
        """Return a new token of the bot of the project or of a person."""
        with self.state.lock:
            text = f"glpat-{secrets.token_hex(10)}"
            self.state.tokens[text] = Token(self.add_user(username, level), scope)
            return text

    def push(self, branch: str, files: Mapping[str, str], by: str) -> str:
        """Push one commit to a branch, and return its SHA. Open merge requests of the branch get a new version."""
        del by
        with self.state.lock:
            now, before = self.state.tick(), self.state.branches.get(branch) or self.state.branches.get("main", "")
            sha = secrets.token_hex(20)
            self.state.files[sha] = {**self.state.files.get(before, {}), **files}
            self.state.branches[branch] = sha
            for request in self.state.merge_requests.values():
                if request.source_branch == branch and request.state == "opened":
                    request.versions.append(Version(self.state.next_id(), sha, now))
            return sha

    def open_merge_request(self, branch: str, by: str, *, is_fork: bool = False) -> int:
        """Open a merge request from a branch to `main`, and return its number."""
        with self.state.lock:
            iid = len(self.state.merge_requests) + 1
            source = _FORK if is_fork else PROJECT
            request = MergeRequest(iid, self.state.users[by], branch, "main", source)
            version = Version(self.state.next_id(), self.state.branches[branch], self.state.tick())
            request.versions.append(version)
            self.state.merge_requests[iid] = request
            return iid

    def close(self, iid: int) -> None:
        """Close a merge request."""
        with self.state.lock:
            self.state.merge_requests[iid].state = "closed"

    def head(self, iid: int) -> str:
        """Return the latest commit of a merge request."""
        with self.state.lock:
            return self.state.merge_requests[iid].versions[-1].head

    def comment(self, iid: int, username: str, text: str) -> Note:
        """Write a note."""
        with self.state.lock:
            now = self.state.tick()
            note = Note(self.state.next_id(), self.state.users[username], text, now, now)
            self.state.merge_requests[iid].notes[note.id] = note
            return note

    def edit(self, note: Note, text: str) -> None:
        """Change the text of a note."""
        with self.state.lock:
            note.body, note.updated = text, self.state.tick()

    def delete(self, iid: int, note: Note) -> None:
        """Delete a note."""
        with self.state.lock:
            del self.state.merge_requests[iid].notes[note.id]

    def notes(self, iid: int) -> Sequence[Note]:
        """Return the notes of a merge request, the oldest first."""
        with self.state.lock:
            return list(self.state.merge_requests[iid].notes.values())

    def statuses(self, sha: str) -> Sequence[Status]:
        """Return the statuses of a commit."""
        with self.state.lock:
            return [status for status in self.state.statuses if status.sha == sha]

    def start_pipeline(self) -> int:
        """Start a pipeline, and return its number."""
        with self.state.lock:
            number = self.state.next_id()
            self.state.pipelines[number] = "running"
            return number

    def note_event(self, iid: int, note: Note, action: str = "create") -> dict[str, Any]:
        """Return the event of a note on a merge request, as a webhook sends it."""
        with self.state.lock:
            request = self.state.merge_requests[iid]
            page = f"https://gitlab.example.com/{PATH}"
            return {
                "object_kind": "note",
                "event_type": "note",
                "user": {"id": note.author.id, "name": note.author.username, "username": note.author.username},
                "project_id": PROJECT,
                "project": {"id": PROJECT, "path_with_namespace": PATH, "web_url": page, "default_branch": "main"},
                "object_attributes": {
                    "id": note.id,
                    "note": note.body,
                    "noteable_type": "MergeRequest",
                    "author_id": note.author.id,
                    "created_at": note.created.strftime("%Y-%m-%d %H:%M:%S UTC"),
                    "updated_at": note.updated.strftime("%Y-%m-%d %H:%M:%S UTC"),
                    "system": False,
                    "action": action,
                    "url": f"{page}/-/merge_requests/{iid}#note_{note.id}",
                },
                "merge_request": {
                    "iid": iid,
                    "state": request.state,
                    "source_branch": request.source_branch,
                    "target_branch": request.target_branch,
                    "source_project_id": request.source_project,
                    "target_project_id": PROJECT,
                    "last_commit": {"id": request.versions[-1].head},
                },
            }


@contextmanager
def serving() -> Iterator[Server]:
    """Yield a running server."""
    server = Server()
    try:
        yield server
    finally:
        server.stop()
