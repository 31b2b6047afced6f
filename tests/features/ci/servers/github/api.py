"""Answers requests: finds the token and the endpoint, counts the rate limit, and records the request.

The headers and the numbers of rate limits are those of
https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api.
"""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote

from tests.features.ci.servers.github import ci_endpoints, issue_endpoints, refusals, repository_endpoints
from tests.features.ci.servers.github.account_views import Site
from tests.features.ci.servers.github.endpoints import ENDPOINTS, Answer, Call, Endpoint, check_access
from tests.features.ci.servers.github.http_messages import HttpAnswer, HttpRequest
from tests.features.ci.servers.github.refusals import ApiError
from tests.features.ci.servers.github.state import State, Token

__all__ = ["Api", "Recorded", "ci_endpoints", "issue_endpoints", "repository_endpoints"]

_VERSION: Final = "2022-11-28"
_LIMITS: Final = {"installation": 1000, "fine_grained": 5000, "classic": 5000}
_ANONYMOUS_LIMIT: Final = 60
_HOUR: Final = 3600
_OVERVIEW: Final = "rest"
_RATE_LIMIT: Final = "rest/using-the-rest-api/rate-limits-for-the-rest-api"


@dataclass(frozen=True, slots=True)
class Recorded:
    """A request and its answer.

    Args:
        endpoint: the path of the endpoint with the names of its parameters; empty if there is none.
        login: the account of the token; empty for no token or a bad one.
        body: the JSON of the request.
        headers: all headers except `authorization`.
        status: the status of the answer; 0 if the connection was dropped.
        answer: the JSON of the answer.
        leaked_token: whether the token was in the address, in the body or in another header.
    """

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any
    login: str = ""
    endpoint: str = ""
    status: int = 0
    answer: Any = None
    leaked_token: bool = False


@dataclass(slots=True)
class Budget:
    """The requests that an account may send in an hour. `reset` is a time of this machine in seconds."""

    limit: int
    used: int = 0
    reset: float = field(default_factory=lambda: time.time() + _HOUR)

    def headers(self) -> Mapping[str, str]:
        """Return the headers that describe the budget."""
        numbers = {
            "limit": self.limit,
            "remaining": self.limit - self.used,
            "reset": int(self.reset),
            "used": self.used,
        }
        return {f"x-ratelimit-{name}": str(number) for name, number in numbers.items()} | {
            "x-ratelimit-resource": "core"
        }

    def take(self) -> bool:
        """Count a request, and return whether it is within the budget."""
        if time.time() >= self.reset:
            self.used, self.reset = 0, time.time() + _HOUR
        is_within = self.used < self.limit
        self.used += is_within
        return is_within


class Api:
    """The endpoints over the state of a server."""

    def __init__(self, state: State, site: Site) -> None:
        self.state = state
        self.site = site
        self.requests: list[Recorded] = []
        self._budgets: dict[str, Budget] = {}

    def budget(self, token: Token | None) -> Budget:
        """Return the budget of the account of a token."""
        login = token.account.login if token else ""
        limit = _LIMITS[token.kind] if token else _ANONYMOUS_LIMIT
        return self._budgets.setdefault(login, Budget(limit))

    def answer(self, request: HttpRequest) -> HttpAnswer:
        """Answer a request, and record it."""
        with self.state.lock:
            token = self.state.token(_token_text(request) or "")
            endpoint, parameters = self._find(request)
            documentation = endpoint.documentation if endpoint else _OVERVIEW
            number = len(self.requests) + 1
            headers: dict[str, str] = {
                "x-github-request-id": f"0400:{number:04X}",
                "x-github-media-type": "github.v3; format=json",
                "x-github-api-version-selected": request.headers.get("x-github-api-version", _VERSION),
            }
            try:
                self._admit(request, token, headers)
                answer = self._call(request, token, endpoint, parameters)
            except ApiError as error:
                about = _RATE_LIMIT if "rate limit" in error.message else documentation
                answer = Answer(error.content(about), error.status, error.headers)
            body = b"" if answer.content is None else json.dumps(answer.content).encode()
            self.record(request, endpoint.path if endpoint else "", answer.status, answer.content)
            return HttpAnswer(answer.status, {**headers, **answer.headers}, body)

    def _find(self, request: HttpRequest) -> tuple[Endpoint | None, Mapping[str, str]]:
        path = self._named(request.path)
        for endpoint in ENDPOINTS:
            parameters = endpoint.match(request.method, path)
            if parameters is not None:
                return endpoint, {name: unquote(value) for name, value in parameters.items()}
        return None, {}

    def _named(self, path: str) -> str:
        """Return a path with the name of the repository instead of its id."""
        match = re.match(r"/repositories/([0-9]+)", path)
        names = [one.full_name for one in self.state.repositories.values() if match and str(one.id) == match[1]]
        return f"/repos/{names[0]}{path[match.end() :]}" if match and names else path

    def _admit(self, request: HttpRequest, token: Token | None, headers: dict[str, str]) -> None:
        """Refuse requests without a program's name, with a bad token, or above the rate limit."""
        if not request.headers.get("user-agent"):
            message = "Request forbidden by administrative rules. Please make sure your request has a User-Agent header"
            raise refusals.forbidden(message)
        if token is None and "authorization" in request.headers:
            raise refusals.unauthorized("Bad credentials")
        budget = self.budget(token)
        is_within = budget.take()
        headers |= budget.headers()
        if not is_within:
            kind = "installation ID" if token and token.account.app else "user ID"
            owner = f"{kind} {token.account.id}" if token else "127.0.0.1"
            raise refusals.forbidden(f"API rate limit exceeded for {owner}.")

    def _call(
        self, request: HttpRequest, token: Token | None, endpoint: Endpoint | None, parameters: Mapping[str, str]
    ) -> Answer:
        if endpoint is None:
            raise refusals.not_found()
        body = _json(request.body)
        call = Call(self.state, self.site, endpoint, parameters, request.query, body, token)
        if "repo" in parameters:
            check_access(call)
        return endpoint.handler(call)

    def record(self, request: HttpRequest, endpoint: str, status: int, answer: Any = None) -> None:
        """Record a request without its token."""
        text = _token_text(request)
        token = self.state.token(text or "")
        others = {name: value for name, value in request.headers.items() if name != "authorization"}
        login = token.account.login if token else ""
        body = request.body.decode(errors="replace")
        leaks = bool(text) and any(str(text) in part for part in (unquote(request.target), body, *others.values()))
        recorded = Recorded(request.method, request.path, request.query, others, _lenient_json(body), login, endpoint)
        recorded = replace(recorded, status=int(status), answer=answer, leaked_token=leaks)
        self.requests.append(_masked(recorded, str(text)) if leaks else recorded)

    def find_requests(self, method: str, path: str) -> Sequence[Recorded]:
        """Return the recorded requests with a method and a path that matches a regular expression."""
        return [one for one in self.requests if one.method == method and re.search(path, one.path)]


def _token_text(request: HttpRequest) -> str | None:
    """Return the token in the header `authorization`, in any form that GitHub accepts."""
    scheme, _, text = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        return base64.b64decode(text).decode(errors="replace").rpartition(":")[2]
    return text.strip() if scheme.lower() in ("bearer", "token") else None


def _json(body: bytes) -> Any:
    try:
        return json.loads(body or b"{}")
    except ValueError:
        raise ApiError(HTTPStatus.BAD_REQUEST, "Problems parsing JSON") from None


def _lenient_json(body: str) -> Any:
    try:
        return json.loads(body or "null")
    except ValueError:
        return body


def _masked(recorded: Recorded, token: str) -> Recorded:
    def mask(value: Any) -> Any:
        return json.loads(json.dumps(value).replace(token, "***"))

    return replace(
        recorded,
        path=mask(recorded.path),
        query=mask(recorded.query),
        headers=mask(recorded.headers),
        body=mask(recorded.body),
        answer=mask(recorded.answer),
    )
