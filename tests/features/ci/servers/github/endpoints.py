"""What all endpoints share: their table, who may call them, the fields of a request, and pages.

Permissions follow https://docs.github.com/rest/authentication/permissions-required-for-github-apps, and pages follow
https://docs.github.com/rest/using-the-rest-api/using-pagination-in-the-rest-api.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlencode

from tests.features.ci.servers.github import refusals
from tests.features.ci.servers.github.account_views import Site
from tests.features.ci.servers.github.state import Account, Commit, Issue, Repository, Role, State, Token

_PER_PAGE: Final = 30
_MAX_PER_PAGE: Final = 100
_ANNOUNCED: Final = "x-accepted-github-permissions"


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of an endpoint. `content` is None for an answer without a body."""

    content: Any = None
    status: HTTPStatus = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint of the API.

    Args:
        documentation: the page of the endpoint below https://docs.github.com/.
        permissions: a token needs one of these.
        role: the role that a person needs in the repository.
        is_public: whether a public repository can be read without the permission.
    """

    method: str
    path: str
    handler: Callable[[Call], Answer]
    documentation: str
    permissions: Sequence[str]
    role: Role
    is_public: bool

    @property
    def level(self) -> str:
        """The level of the permission that a token needs."""
        return "read" if self.method == "GET" else "write"

    def match(self, method: str, path: str) -> Mapping[str, str] | None:
        """Return the parameters in a path, or None if the endpoint has another method or path."""
        pattern = re.sub(r"\{path\}", "(?P<path>.+)", self.path)
        pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", pattern)
        match = re.fullmatch(pattern, path) if method == self.method else None
        return match.groupdict() if match else None


ENDPOINTS: Final[list[Endpoint]] = []


def endpoint(
    method: str,
    path: str,
    documentation: str,
    *permissions: str,
    role: Role = Role.read,
    is_public: bool = True,
) -> Callable[[Callable[[Call], Answer]], Callable[[Call], Answer]]:
    """Add a function to the table of endpoints."""

    def add(handler: Callable[[Call], Answer]) -> Callable[[Call], Answer]:
        public = is_public and method == "GET"
        ENDPOINTS.append(Endpoint(method, path, handler, f"rest/{documentation}", permissions, role, public))
        return handler

    return add


@dataclass(frozen=True, slots=True)
class Call:
    """A request to an endpoint."""

    state: State
    site: Site
    endpoint: Endpoint
    parameters: Mapping[str, str]
    query: Mapping[str, str]
    body: Any
    token: Token | None

    @property
    def account(self) -> Account:
        """The account of the token."""
        if self.token is None:
            raise refusals.unauthorized("Requires authentication")
        return self.token.account

    @property
    def repository(self) -> Repository:
        """The repository of the path."""
        found = self.state.repositories.get(f"{self.parameters['owner']}/{self.parameters['repo']}".lower())
        if found is None:
            raise refusals.not_found()
        return found

    @property
    def issue(self) -> Issue:
        """The issue or pull request of the path."""
        found = self.repository.issues.get(self.number("number"))
        if found is None:
            raise refusals.not_found()
        return found

    def number(self, name: str) -> int:
        """Return a parameter of the path that must be a number."""
        text = self.parameters[name]
        if not re.fullmatch(r"[0-9]{1,18}", text):
            raise refusals.not_found()
        return int(text)

    @property
    def fields(self) -> Fields:
        """The fields of the body."""
        if not isinstance(self.body, Mapping):
            raise refusals.ApiError(HTTPStatus.BAD_REQUEST, "Body should be a JSON object")
        return Fields(self.body)

    def find_commit(self, ref: str) -> Commit | None:
        """Return the commit that a branch, the ref of a branch or a SHA names, or None."""
        name = ref.removeprefix("refs/").removeprefix("heads/")
        return self.state.commits.get(self.repository.branches.get(name, ref))

    def may_moderate(self) -> bool:
        """Return whether the account may change issues and labels that it did not create."""
        return self.account.app is not None or self.repository.role_of(self.account) >= Role.triage

    def page(self, items: Sequence[Any], view: Callable[[Any], Any], *, wrapper: str = "") -> Answer:
        """Return the page of a list that the query names, with the header that links to the other pages.

        Args:
            wrapper: the name of the list, if the answer is an object with the total number.
        """
        size = min(_positive(self.query.get("per_page"), _PER_PAGE), _MAX_PER_PAGE)
        number, last = _positive(self.query.get("page"), 1), max(1, -(-len(items) // size))
        shown = [view(item) for item in items[(number - 1) * size : number * size]]
        content = {"total_count": len(items), wrapper: shown} if wrapper else shown
        return Answer(content, headers=self._link(number, last))

    def _link(self, number: int, last: int) -> Mapping[str, str]:
        pages = {"prev": number - 1, "next": number + 1, "last": last, "first": 1}
        away = {"prev": number > 1, "next": number < last, "last": number < last, "first": number > 1}
        links = [f'<{self._address(pages[name])}>; rel="{name}"' for name in pages if away[name]]
        return {"link": ", ".join(links)} if links else {}

    def _address(self, page: int) -> str:
        """Return the address of a page, with the id of the repository instead of its name, as GitHub does."""
        tail = self.endpoint.path.removeprefix("/repos/{owner}/{repo}").format(**self.parameters)
        query = urlencode({**self.query, "page": page})
        return f"{self.site.api}/repositories/{self.repository.id}{tail}?{query}"


def _positive(text: str | None, default: int) -> int:
    return int(text) if text and re.fullmatch(r"[1-9][0-9]{0,9}", text) else default


class Fields:
    """The fields of a body, with the checks that GitHub makes."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self._body = body

    def __contains__(self, name: str) -> bool:
        return name in self._body

    def text(self, name: str) -> str:
        """Return a text that must be given."""
        if name not in self._body:
            raise refusals.not_supplied(name)
        value = self._body[name]
        if not isinstance(value, str):
            raise refusals.wrong_type(name, value, "a string")
        return value

    def optional(self, name: str) -> str | None:
        """Return a text, or None if it is missing or null."""
        return None if self._body.get(name) is None else self.text(name)

    def choice(self, name: str, resource: str, choices: Sequence[str]) -> str:
        """Return a text that must be given, and be one of some choices."""
        value = self.text(name)
        if value not in choices:
            raise refusals.validation_failed(resource, "invalid", name)
        return value

    def names(self, name: str) -> Sequence[str]:
        """Return a list of texts or of objects with names; empty if it is missing."""
        value = self._body.get(name, [])
        if not isinstance(value, list):
            raise refusals.wrong_type(name, value, "an array")
        return [str(one["name"] if isinstance(one, Mapping) else one) for one in value]

    def items(self, name: str) -> Sequence[Mapping[str, Any]]:
        """Return a list of objects; empty if it is missing."""
        value = self._body.get(name, [])
        if not isinstance(value, list) or not all(isinstance(one, Mapping) for one in value):
            raise refusals.wrong_type(name, value, "an array")
        return value

    def nested(self, name: str) -> Fields | None:
        """Return the fields of an object, or None if it is missing or null."""
        value = self._body.get(name)
        if value is not None and not isinstance(value, Mapping):
            raise refusals.wrong_type(name, value, "an object")
        return None if value is None else Fields(value)


def check_access(call: Call) -> None:
    """Check that a token may call an endpoint of a repository.

    Raises:
        ApiError: it may not.
    """
    repository, token = call.repository, call.token
    if repository.is_private and not _sees(token, repository):
        raise refusals.not_found()
    if call.endpoint.is_public and not repository.is_private:
        return
    if token is None:
        raise refusals.unauthorized("Requires authentication")
    check_permission(call)
    if token.kind != "installation" and repository.role_of(token.account) < call.endpoint.role:
        raise refusals.forbidden("Must have admin rights to Repository.")


def _sees(token: Token | None, repository: Repository) -> bool:
    return token is not None and (token.kind == "installation" or repository.role_of(token.account) >= Role.read)


def check_permission(call: Call) -> None:
    """Check that a token has one of the permissions that an endpoint needs.

    A token that may only write pull requests may not write to issues that are not pull requests.

    Raises:
        ApiError: it has none of them.
    """
    token, needed = call.token, list(call.endpoint.permissions)
    if token is None:
        raise refusals.unauthorized("Requires authentication")
    if "pull_requests" in needed and "number" in call.parameters and "issues" in needed and not call.issue.pull:
        needed.remove("pull_requests")
    if needed and not any(token.allows(permission, call.endpoint.level) for permission in needed):
        kind = "integration" if token.kind == "installation" else "personal access token"
        accepted = {_ANNOUNCED: "; ".join(f"{one}={call.endpoint.level}" for one in call.endpoint.permissions)}
        message = f"Resource not accessible by {kind}"
        raise refusals.ApiError(HTTPStatus.FORBIDDEN, message, headers=accepted)
