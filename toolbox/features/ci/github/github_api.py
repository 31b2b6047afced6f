"""Calls the REST API of GitHub with PyGithub, the client library that GitHub's documentation lists for Python.

PyGithub repeats requests that are safe to repeat, and waits for rate limits. A request that creates something is only
repeated if GitHub has refused it before it had an effect (a rate limit, or 413 and 503 with `Retry-After`), because
`toolbox/features/ci/run_comment.py` looks for the comment before the next try.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote

from toolbox.features.ci.extra import GITHUB
from toolbox.ground.model.errors import InfrastructureError, MissingToken, RefusedRequest, UsageError
from toolbox.ground.model.foreign_text import clean
from toolbox.ground.model.text import truncate
from toolbox.ground.system import environ, extras

if TYPE_CHECKING:
    from github import GithubException
    from github.Requester import Requester

_REPOSITORY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*/[A-Za-z0-9_.-]*[A-Za-z0-9_-][A-Za-z0-9_.-]*")
_LONGEST_ERROR: Final = 400
_PUBLIC_API: Final = "https://api.github.com"
TOKENS: Final = ("GH_TOKEN", "GITHUB_TOKEN")
"""The environment variables with a token, in the order in which they are looked up."""
_TRIES: Final = 4
_FIRST_PAUSE: Final = 1.0  # seconds; each later pause is twice as long
_LONGEST_WAIT: Final = 300.0  # seconds for a rate limit to end
_TIMEOUT: Final = 30  # seconds for an answer
_WRITE_PAUSE: Final = 1.0  # seconds between two requests that write, as GitHub asks for
_PAGE: Final = 100
_MAX_PAGES: Final = 50
_CREATES: Final = "POST"
_FAULTS: Final = range(500, 600)  # HTTP statuses
_NO_ACCOUNT: Final = "not accessible by integration"  # the answer to the token of a job that asks for its account
_DENIED: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class Api(Protocol):
    """The API of one repository.

    Paths are relative to the repository, as in `issues/7`. A path that begins with `/` is not.
    """

    repository: str

    def of(self, repository: str) -> Api:
        """Return the API of another repository, with the same token."""

    def get(self, path: str, **query: str | int) -> Any:
        """Return the parsed answer to a GET request."""

    def items(self, path: str, **query: str | int) -> Iterator[Mapping[str, Any]]:
        """Yield the objects of a list, from all of its pages."""

    def send(self, method: str, path: str, body: Mapping[str, object]) -> Any:
        """Send a JSON body, and return the parsed answer."""

    def login(self) -> str:
        """Return the name of the account to which the token belongs."""


class GitHubApi:
    """The API of one repository on GitHub.

    Args:
        repository: the owner and the name of the repository.
        token: the token of an account, or of a job of GitHub Actions.
        url: the address of the API.

    Raises:
        UsageError: the repository is not `OWNER/NAME`.
        ConfigurationError: PyGithub is not installed.
    """

    def __init__(self, repository: str, token: str, url: str = _PUBLIC_API) -> None:
        if not _REPOSITORY.fullmatch(repository):
            raise UsageError("$GITHUB_REPOSITORY must be OWNER/NAME: GitHub Actions sets this variable")
        extras.require(GITHUB, "the API of GitHub")
        self.repository = repository
        self._token, self._url = token, url
        self._idempotent = _requester(token, url, repeats_all=True)
        self._creating = _requester(token, url, repeats_all=False)

    def of(self, repository: str) -> GitHubApi:
        """Return the API of another repository, with the same token.

        Raises:
            UsageError: the repository is not `OWNER/NAME`.
        """
        return self if repository == self.repository else GitHubApi(repository, self._token, self._url)

    def get(self, path: str, **query: str | int) -> Any:
        """Return the parsed answer to a GET request.

        Raises:
            InfrastructureError: the request failed.
        """
        return self._call("GET", path, query=query)

    def items(self, path: str, **query: str | int) -> Iterator[Mapping[str, Any]]:
        """Yield the objects of a list, from all of its pages.

        Raises:
            InfrastructureError: a request failed, or the list has more than 5,000 items.
        """
        for page in range(1, _MAX_PAGES + 1):
            answer = self.get(path, **query, per_page=_PAGE, page=page)
            found = answer if isinstance(answer, list) else []
            yield from map(mapping, found)
            if len(found) < _PAGE:
                return
        raise InfrastructureError(f"GitHub has more than {_PAGE * _MAX_PAGES:,} items in {path}")

    def send(self, method: str, path: str, body: Mapping[str, object]) -> Any:
        """Send a JSON body, and return the parsed answer.

        Raises:
            InfrastructureError: the request failed.
        """
        return self._call(method, path, body=body)

    def login(self) -> str:
        """Return the name of the account to which the token belongs.

        Raises:
            InfrastructureError: the request failed.
        """
        try:
            return str(mapping(self._call("GET", "/user")).get("login") or "")
        except RefusedRequest as refusal:
            if refusal.status != HTTPStatus.FORBIDDEN or _NO_ACCOUNT not in str(refusal):
                raise
            return ACTIONS_BOT

    def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | int] | None = None,
        body: Mapping[str, object] | None = None,
    ) -> Any:
        import requests
        from github import GithubException

        path = path if path.startswith("/") else f"/repos/{self.repository}/{path}"
        requester = self._creating if method == _CREATES else self._idempotent
        try:
            _, answer = requester.requestJsonAndCheck(method, path, parameters=dict(query or {}), input=body)
        except GithubException as error:
            raise _refusal(method, path, error) from None
        except (requests.RequestException, ValueError) as error:
            problem = truncate(" ".join(clean(str(error)).split()), _LONGEST_ERROR)
            raise InfrastructureError(f"GitHub did not answer {method} {path}: {problem}") from None
        return answer


ACTIONS_BOT: Final = "github-actions[bot]"
"""The account of the tokens of jobs of GitHub Actions."""


def from_environment(repository: str | None = None, token_variable: str | None = None) -> GitHubApi:
    """Return the API of a repository, with a token of the environment.

    Args:
        repository: the owner and the name; by default the value of `$GITHUB_REPOSITORY`.
        token_variable: the variable with the token; by default `$GH_TOKEN` or `$GITHUB_TOKEN`.

    Raises:
        UsageError: a variable is missing or wrong.
        ConfigurationError: PyGithub is not installed.
    """
    names = TOKENS if token_variable is None else (token_variable,)
    token = next((value for name in names if (value := environ.get(name))), None)
    if token is None:
        raise MissingToken(f"${names[0]} is not set: in GitHub Actions, pass `${{{{ github.token }}}}` to the step")
    name = repository or environ.get("GITHUB_REPOSITORY") or ""
    return GitHubApi(name, token, environ.get("GITHUB_API_URL") or _PUBLIC_API)


def quoted_path(text: str) -> str:
    """Return the path of a file as a part of a path of the API."""
    return quote(text)


def segment(text: str) -> str:
    """Return a text as one segment of a path."""
    return quote(text, safe="")


def mapping(value: Any) -> Mapping[str, Any]:
    """Return a part of an answer that should be an object; an empty mapping if it is something else."""
    return value if isinstance(value, Mapping) else {}


def _requester(token: str, url: str, *, repeats_all: bool) -> Requester:
    """Return a client whose requests are repeated after a rate limit, and after other faults only if all are."""
    from github import Auth, Github, GithubRetry

    logging.getLogger("github").setLevel(logging.WARNING)  # also an answer that is expected would be a message
    retry = GithubRetry(
        max_rate_limit_wait=_LONGEST_WAIT,
        total=_TRIES,
        read=None if repeats_all else False,
        status_forcelist=[HTTPStatus.TOO_MANY_REQUESTS, *(_FAULTS if repeats_all else ())],
        allowed_methods={"GET", "PATCH", "DELETE", _CREATES},
        backoff_factor=_FIRST_PAUSE,
        retry_after_max=int(_LONGEST_WAIT),
    )
    return Github(
        auth=Auth.Token(token),
        base_url=url,
        timeout=_TIMEOUT,
        retry=retry,
        seconds_between_requests=None,
        seconds_between_writes=_WRITE_PAUSE,
    ).requester


def _refusal(method: str, path: str, error: GithubException) -> RefusedRequest:
    data = mapping(error.data)
    faults = data.get("errors")
    details = [str(mapping(item).get("message") or "") for item in (faults if isinstance(faults, list) else ())]
    problem = " ".join(clean(": ".join(filter(None, [str(data.get("message") or ""), *details]))).split())
    reason = truncate(problem, _LONGEST_ERROR) or "no message"
    message = f"GitHub refused {method} {path}: {reason} (HTTP {error.status})"
    if error.status in _DENIED:
        message += "\n  check $GH_TOKEN, and the `permissions` of the job"
    return RefusedRequest(message, error.status)
