"""Calls the REST API of GitLab with python-gitlab, the client library that GitLab's documentation lists for Python.

python-gitlab repeats requests after a rate limit. After other faults, only requests that are safe to repeat are
repeated: `toolbox/features/ci/run_comment.py` looks for a comment before it creates the comment again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from toolbox.features.ci.extra import GITLAB
from toolbox.ground.model.errors import InfrastructureError, MissingToken, RefusedRequest, UsageError
from toolbox.ground.model.foreign_text import clean
from toolbox.ground.model.text import truncate
from toolbox.ground.system import environ, extras

if TYPE_CHECKING:
    import requests
    from gitlab import GitlabError

TOKEN: Final = "GITLAB_TOKEN"  # noqa: S105  # the name of a variable
_API: Final = "/api/v4"
_CREATES: Final = "POST"
_LONGEST_ERROR: Final = 400
_TRIES: Final = 4
_LONGEST_WAIT: Final = 300  # seconds for a rate limit to end
_TIMEOUT: Final = 30.0  # seconds for an answer
_PAGE: Final = 100
_MAX_ITEMS: Final = 5000
_DENIED: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class GitLabApi:
    """The API of one project. Paths are relative to the project, as in `issues/7`, unless they begin with `/`.

    Args:
        project: the number of the project.
        token: the token of a person, a project or a group, with the scope `api`.
        url: the address of the API, which ends with `/api/v4`.

    Raises:
        UsageError: the address is not that of an API.
        ConfigurationError: python-gitlab is not installed.
    """

    def __init__(self, project: int, token: str, url: str) -> None:
        if not url.endswith(_API):
            raise UsageError(f"$CI_API_V4_URL must end with {_API}: GitLab CI sets this variable")
        extras.require(GITLAB, "the API of GitLab")
        from gitlab import Gitlab

        self.project = project
        self._client = Gitlab(url.removesuffix(_API), private_token=token, timeout=_TIMEOUT)
        self._client.session.hooks["response"].append(_limit_wait)

    def get(self, path: str, **query: str | int) -> Any:
        """Return the parsed answer to a GET request.

        Raises:
            InfrastructureError: the request failed.
        """
        return self._call("GET", path, query=query).json()

    def text(self, path: str, **query: str | int) -> str:
        """Return the answer to a GET request as text.

        Raises:
            InfrastructureError: the request failed.
        """
        return self._call("GET", path, query=query).text

    def items(self, path: str, **query: str | int) -> Iterator[Mapping[str, Any]]:
        """Yield the objects of a list, from all of its pages.

        Raises:
            InfrastructureError: a request failed, or the list has more than 5,000 items.
        """
        for page in range(1, _MAX_ITEMS // _PAGE + 1):
            answer = self._call("GET", path, query={**query, "per_page": _PAGE, "page": page})
            yield from map(mapping, answer.json())
            if not answer.headers.get("X-Next-Page"):
                return
        raise InfrastructureError(f"GitLab has more than {_MAX_ITEMS:,} items in {path}")

    def send(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Any:
        """Send a JSON body, and return the parsed answer.

        Raises:
            InfrastructureError: the request failed.
        """
        return self._call(method, path, body=body or {}).json()

    def delete(self, path: str) -> None:
        """Delete an object.

        Raises:
            InfrastructureError: the request failed.
        """
        self._call("DELETE", path)

    def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | int] | None = None,
        body: Mapping[str, object] | None = None,
    ) -> requests.Response:
        import requests
        from gitlab import GitlabError

        path = path if path.startswith("/") else f"/projects/{self.project}/{path}"
        try:
            return self._client.http_request(
                method.lower(),
                path,
                query_data=dict(query or {}),
                post_data=dict(body) if body is not None else None,
                retry_transient_errors=method != _CREATES,
                max_retries=_TRIES,
            )
        except GitlabError as error:
            raise _refusal(method, path, error) from None
        except (requests.RequestException, ValueError) as error:
            raise InfrastructureError(f"GitLab did not answer {method} {path}: {_line(error)}") from None


def from_environment() -> GitLabApi:
    """Return the API of the project that `$CI_PROJECT_ID` names, with the token of `$GITLAB_TOKEN`.

    Raises:
        UsageError: a variable is missing or wrong.
        ConfigurationError: python-gitlab is not installed.
    """
    values = {name: environ.get(name) or "" for name in ("CI_PROJECT_ID", "CI_API_V4_URL")}
    for name, value in values.items():
        if not value:
            raise UsageError(f"${name} is not set: GitLab CI sets this variable")
    if not values["CI_PROJECT_ID"].isdecimal():
        raise UsageError("$CI_PROJECT_ID must be a number: GitLab CI sets this variable")
    token = environ.get(TOKEN)
    if token is None:
        raise MissingToken(
            f"${TOKEN} is not set: make a project access token with the role Developer and the scope api"
        )
    return GitLabApi(int(values["CI_PROJECT_ID"]), token, values["CI_API_V4_URL"])


def segment(text: str) -> str:
    """Return a text as one segment of a path."""
    return quote(text, safe="")


def mapping(value: Any) -> Mapping[str, Any]:
    """Return a part of an answer that should be an object; an empty mapping if it is something else."""
    return value if isinstance(value, Mapping) else {}


def _limit_wait(response: requests.Response, **_: Any) -> None:
    """Shorten the wait that GitLab demands after a rate limit: python-gitlab waits for any time."""
    response.headers.pop("RateLimit-Reset", None)
    demanded = response.headers.get("Retry-After", "")
    if demanded:
        wait = min(int(demanded), _LONGEST_WAIT) if demanded.isdecimal() else _LONGEST_WAIT
        response.headers["Retry-After"] = str(wait)


def _refusal(method: str, path: str, error: GitlabError) -> RefusedRequest:
    status = error.response_code or 0
    message = f"GitLab refused {method} {path}: {_line(error.error_message)} (HTTP {status})"
    if status in _DENIED:
        message += f"\n  check ${TOKEN}: a token of the project with the role Developer and the scope api"
    return RefusedRequest(message, status)


def _line(problem: object) -> str:
    text = problem.decode(errors="replace") if isinstance(problem, bytes) else str(problem)
    return truncate(" ".join(clean(text).split()), _LONGEST_ERROR) or "no message"
