"""The endpoints of the API: which requests there are, who may send them, and the answers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote, urlencode

from tests.features.ci.servers.github.http_messages import HttpAnswer, HttpRequest
from tests.features.ci.servers.gitlab.gitlab_state import (
    DEVELOPER,
    PATH,
    PROJECT,
    MergeRequest,
    Note,
    State,
    Status,
    Token,
    User,
)

_LONGEST_NOTE: Final = 1_000_000
_LONGEST_DESCRIPTION: Final = 255
_MAX_PER_PAGE: Final = 100
_STATES: Final = ("pending", "running", "success", "failed", "canceled", "skipped")
_OPEN: Final = ("pending", "running")
_EVENTS: Final = {"pending": "enqueue", "running": "run", "success": "success", "failed": "drop", "canceled": "cancel"}


class ApiError(Exception):
    """A refusal of the server."""

    def __init__(self, status: int, content: Mapping[str, Any]) -> None:
        super().__init__(status)
        self.status = status
        self.content = content


def _refusal(status: HTTPStatus, what: str = "") -> ApiError:
    phrase = " ".join(filter(None, [what, status.phrase]))
    return ApiError(status, {"message": f"{status.value} {phrase}"})


@dataclass(frozen=True, slots=True)
class Call:
    """A request to an endpoint."""

    state: State
    base: str
    request: HttpRequest
    parameters: Mapping[str, str]
    token: Token
    body: Mapping[str, Any]

    def need(self, level: int) -> None:
        """Refuse the request if the account has a lower access level in the project."""
        if self.state.levels.get(self.token.user.id, 0) < level:
            raise _refusal(HTTPStatus.FORBIDDEN)

    @property
    def merge_request(self) -> MergeRequest:
        """The merge request of the path."""
        found = self.state.merge_requests.get(int(self.parameters["iid"]))
        if found is None:
            raise _refusal(HTTPStatus.NOT_FOUND)
        return found

    @property
    def note(self) -> Note:
        """The note of the path."""
        found = self.merge_request.notes.get(int(self.parameters["note"]))
        if found is None:
            raise _refusal(HTTPStatus.NOT_FOUND, "Note")
        return found


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of an endpoint: content that becomes JSON, or a text."""

    content: Any
    status: int = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A request and the status of its answer."""

    method: str
    path: str
    query: Mapping[str, str]
    body: Any
    status: int


_Endpoint = Callable[[Call], Answer]
_ENDPOINTS: Final[list[tuple[str, re.Pattern[str], _Endpoint]]] = []


def _endpoint(method: str, path: str) -> Callable[[_Endpoint], _Endpoint]:
    pattern = re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", f"/api/v4{path}"))

    def add(handler: _Endpoint) -> _Endpoint:
        _ENDPOINTS.append((method, pattern, handler))
        return handler

    return add


class Api:
    """The endpoints over the state of a server."""

    def __init__(self, state: State, base: str) -> None:
        self.state = state
        self.base = base
        self.requests: list[Recorded] = []

    def answer(self, request: HttpRequest) -> HttpAnswer:
        """Answer a request, and record it."""
        with self.state.lock:
            try:
                answer = self._call(request)
            except ApiError as error:
                answer = Answer(error.content, error.status)
            self.record(request, "", answer.status)
        is_text = isinstance(answer.content, str)
        body = answer.content if is_text else json.dumps(answer.content)
        kind = {"content-type": "text/plain; charset=utf-8"} if is_text else {}
        return HttpAnswer(answer.status, {**kind, **answer.headers}, body.encode())

    def record(self, request: HttpRequest, endpoint: str, status: int, answer: Any = None) -> None:
        """Record a request."""
        del endpoint, answer
        body = json.loads(request.body) if request.body else None
        self.requests.append(Recorded(request.method, request.path, request.query, body, int(status)))

    def _call(self, request: HttpRequest) -> Answer:
        token = self.state.tokens.get(request.headers.get("private-token", ""))
        if token is None:
            raise _refusal(HTTPStatus.UNAUTHORIZED)
        if token.scope == "read_api" and request.method != "GET":
            raise ApiError(HTTPStatus.FORBIDDEN, {"error": "insufficient_scope"})
        for method, pattern, handler in _ENDPOINTS:
            match = pattern.fullmatch(request.path)
            if match and method == request.method:
                parameters = {name: unquote(value) for name, value in match.groupdict().items()}
                if parameters.get("project", str(PROJECT)) not in (str(PROJECT), PATH):
                    raise _refusal(HTTPStatus.NOT_FOUND, "Project")
                body = json.loads(request.body or b"{}")
                return handler(Call(self.state, self.base, request, parameters, token, body))
        raise _refusal(HTTPStatus.NOT_FOUND)


def _page(call: Call, items: Sequence[Any]) -> Answer:
    """Return the page of a list that the query names, with the headers that link to the other pages."""
    query = call.request.query
    size = max(1, min(int(query.get("per_page", 20)), _MAX_PER_PAGE))
    number, pages = int(query.get("page", 1)), max(1, -(-len(items) // size))

    def link(page: int, rel: str) -> str:
        address = f"{call.base}{call.request.path}?{urlencode({**query, 'page': page, 'per_page': size})}"
        return f'<{address}>; rel="{rel}"'

    links = [link(1, "first"), link(pages, "last")]
    if number < pages:
        links.insert(0, link(number + 1, "next"))
    headers = {
        "x-page": str(number),
        "x-per-page": str(size),
        "x-next-page": str(number + 1) if number < pages else "",
        "x-prev-page": str(number - 1) if number > 1 else "",
        "x-total": str(len(items)),
        "x-total-pages": str(pages),
        "link": ", ".join(links),
    }
    return Answer(list(items[(number - 1) * size : number * size]), headers=headers)


def _time(value: Any) -> str:
    return str(value.isoformat(timespec="milliseconds")).replace("+00:00", "Z")


def _shown_user(user: User) -> dict[str, Any]:
    return {"id": user.id, "username": user.username, "name": user.username, "state": user.state}


def _shown_note(note: Note, request: MergeRequest) -> dict[str, Any]:
    return {
        "id": note.id,
        "type": None,
        "body": note.body,
        "author": _shown_user(note.author),
        "created_at": _time(note.created),
        "updated_at": _time(note.updated),
        "system": False,
        "noteable_type": "MergeRequest",
        "noteable_iid": request.iid,
        "project_id": PROJECT,
    }


def _shown_status(status: Status) -> dict[str, Any]:
    return {
        "id": status.id,
        "sha": status.sha,
        "status": status.state,
        "name": status.name,
        "target_url": status.target_url,
        "description": status.description,
        "author": _shown_user(status.author),
    }


@_endpoint("GET", "/user")
def get_current_user(call: Call) -> Answer:
    """Return the account of the token."""
    return Answer(_shown_user(call.token.user))


@_endpoint("GET", "/users")
def list_users(call: Call) -> Answer:
    """Find a user. Usernames ignore the case."""
    username = call.request.query.get("username", "").lower()
    return _page(call, [_shown_user(user) for name, user in call.state.users.items() if name.lower() == username])


def _member(call: Call, levels: Mapping[int, int]) -> Answer:
    user = next((user for user in call.state.users.values() if str(user.id) == call.parameters["user"]), None)
    if user is None or user.id not in levels:
        raise _refusal(HTTPStatus.NOT_FOUND)
    return Answer({**_shown_user(user), "access_level": levels[user.id], "expires_at": None})


@_endpoint("GET", "/projects/{project}/members/all/{user}")
def get_project_member(call: Call) -> Answer:
    """Return a member of the project, also an inherited one."""
    return _member(call, call.state.levels)


@_endpoint("GET", "/groups/{group}/members/all/{user}")
def get_group_member(call: Call) -> Answer:
    """Return a member of a group, also an inherited one."""
    if call.parameters["group"] not in call.state.groups:
        raise _refusal(HTTPStatus.NOT_FOUND, "Group")
    return _member(call, call.state.groups[call.parameters["group"]])


@_endpoint("GET", "/projects/{project}/merge_requests/{iid}")
def get_merge_request(call: Call) -> Answer:
    """Return a merge request."""
    request = call.merge_request
    return Answer(
        {
            "iid": request.iid,
            "state": request.state,
            "sha": request.versions[-1].head,
            "source_branch": request.source_branch,
            "target_branch": request.target_branch,
            "source_project_id": request.source_project,
            "target_project_id": PROJECT,
            "web_url": f"https://gitlab.example.com/{PATH}/-/merge_requests/{request.iid}",
        }
    )


@_endpoint("GET", "/projects/{project}/merge_requests/{iid}/versions")
def list_versions(call: Call) -> Answer:
    """List the versions of a merge request, the newest first."""
    versions = [
        {"id": one.id, "head_commit_sha": one.head, "created_at": _time(one.created), "state": "collected"}
        for one in reversed(call.merge_request.versions)
    ]
    return _page(call, versions)


@_endpoint("GET", "/projects/{project}/merge_requests/{iid}/notes")
def list_notes(call: Call) -> Answer:
    """List the notes of a merge request, the newest first unless the query says otherwise."""
    notes = [_shown_note(note, call.merge_request) for note in call.merge_request.notes.values()]
    return _page(call, notes if call.request.query.get("sort") == "asc" else notes[::-1])


@_endpoint("GET", "/projects/{project}/merge_requests/{iid}/notes/{note}")
def get_note(call: Call) -> Answer:
    """Return a note."""
    return Answer(_shown_note(call.note, call.merge_request))


def _body(call: Call) -> str:
    body = call.body.get("body")
    if not isinstance(body, str) or not body:
        raise ApiError(HTTPStatus.BAD_REQUEST, {"error": "body is missing"})
    if len(body) > _LONGEST_NOTE:
        raise ApiError(HTTPStatus.BAD_REQUEST, {"message": {"note": ["is too long (maximum is 1000000 characters)"]}})
    return body


@_endpoint("POST", "/projects/{project}/merge_requests/{iid}/notes")
def create_note(call: Call) -> Answer:
    """Create a note."""
    now = call.state.tick()
    note = Note(call.state.next_id(), call.token.user, _body(call), now, now)
    call.merge_request.notes[note.id] = note
    return Answer(_shown_note(note, call.merge_request), HTTPStatus.CREATED)


@_endpoint("PUT", "/projects/{project}/merge_requests/{iid}/notes/{note}")
def update_note(call: Call) -> Answer:
    """Change a note of the account."""
    note = call.note
    if note.author is not call.token.user:
        raise _refusal(HTTPStatus.FORBIDDEN)
    note.body, note.updated = _body(call), call.state.tick()
    return Answer(_shown_note(note, call.merge_request))


@_endpoint("DELETE", "/projects/{project}/merge_requests/{iid}/notes/{note}")
def delete_note(call: Call) -> Answer:
    """Delete a note of the account."""
    note = call.note
    if note.author is not call.token.user:
        raise _refusal(HTTPStatus.FORBIDDEN)
    del call.merge_request.notes[note.id]
    return Answer("", HTTPStatus.NO_CONTENT)


@_endpoint("POST", "/projects/{project}/statuses/{sha}")
def create_status(call: Call) -> Answer:
    """Set the status of a commit."""
    call.need(DEVELOPER)
    state, sha = call.body.get("state"), call.parameters["sha"]
    if state not in _STATES:
        raise ApiError(HTTPStatus.BAD_REQUEST, {"error": "state does not have a valid value"})
    if sha not in call.state.files:
        raise _refusal(HTTPStatus.NOT_FOUND, "Commit")
    description = call.body.get("description")
    if description and len(description) > _LONGEST_DESCRIPTION:
        raise ApiError(HTTPStatus.BAD_REQUEST, {"message": {"description": ["is too long"]}})
    name = call.body.get("name") or "default"
    running = [one for one in call.state.statuses if (one.sha, one.name) == (sha, name) and one.state in _OPEN]
    if running and (running[-1].state == state or state == "pending"):
        problem = f"Cannot transition status via :{_EVENTS[state]} from :{running[-1].state} (Reason(s): Status cannot "
        raise ApiError(HTTPStatus.BAD_REQUEST, {"message": f'{problem}transition via "{_EVENTS[state]}")'})
    url = call.body.get("target_url")
    if running:
        status = running[-1]
        status.state, status.description, status.target_url = state, description, url
    else:
        status = Status(call.state.next_id(), sha, name, state, description, url, call.token.user)
        call.state.statuses.append(status)
    return Answer(_shown_status(status), HTTPStatus.CREATED)


def _pipeline(call: Call) -> int:
    number = int(call.parameters["pipeline"])
    if number not in call.state.pipelines:
        raise _refusal(HTTPStatus.NOT_FOUND)
    return number


@_endpoint("GET", "/projects/{project}/pipelines/{pipeline}")
def get_pipeline(call: Call) -> Answer:
    """Return a pipeline."""
    number = _pipeline(call)
    return Answer({"id": number, "status": call.state.pipelines[number]})


@_endpoint("POST", "/projects/{project}/pipelines/{pipeline}/cancel")
def cancel_pipeline(call: Call) -> Answer:
    """Cancel the jobs of a pipeline, which end at once here."""
    call.need(DEVELOPER)
    number = _pipeline(call)
    call.state.pipelines[number] = "canceled"
    return Answer({"id": number, "status": "canceled"})


@_endpoint("GET", "/projects/{project}/repository/branches/{branch}")
def get_branch(call: Call) -> Answer:
    """Return a branch with its latest commit."""
    branch = call.parameters["branch"]
    if branch not in call.state.branches:
        raise _refusal(HTTPStatus.NOT_FOUND, "Branch")
    return Answer({"name": branch, "commit": {"id": call.state.branches[branch]}})


@_endpoint("GET", "/projects/{project}/repository/files/{path}/raw")
def get_file(call: Call) -> Answer:
    """Return the text of a file."""
    ref = call.request.query.get("ref", "main")
    files = call.state.files.get(call.state.branches.get(ref, ref), {})
    if call.parameters["path"] not in files:
        raise _refusal(HTTPStatus.NOT_FOUND, "File")
    return Answer(files[call.parameters["path"]])
