"""Calls the API of GitHub by its command line `gh`, which the runners of GitHub Actions have.

`gh` reads the token from the environment variable `GH_TOKEN`. No argument contains the token or a text from outside:
bodies of requests go through standard input.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import quote, urlencode

from toolbox.model.errors import InfrastructureError, UsageError
from toolbox.model.foreign_text import clean
from toolbox.model.text import truncate
from toolbox.system import environ, processes

_REPOSITORY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*/[A-Za-z0-9_.-]*[A-Za-z0-9_-][A-Za-z0-9_.-]*")
_LONGEST_ERROR: Final = 400


class Api(Protocol):
    """The API of one repository. Paths are relative to the repository, as in `issues/7`."""

    repository: str

    def get(self, path: str, **query: str | int) -> Any:
        """Return the parsed answer to a GET request."""

    def send(self, method: str, path: str, body: Mapping[str, object]) -> Any:
        """Send a JSON body, and return the parsed answer."""


class CommandLineApi:
    """Calls `gh api`.

    Args:
        repository: the owner and the name of the repository.

    Raises:
        UsageError: the repository is not `OWNER/NAME`.
    """

    def __init__(self, repository: str) -> None:
        if not _REPOSITORY.fullmatch(repository):
            raise UsageError("$GITHUB_REPOSITORY must be OWNER/NAME: GitHub Actions sets this variable")
        self.repository = repository

    def get(self, path: str, **query: str | int) -> Any:
        """Return the parsed answer to a GET request.

        Raises:
            InfrastructureError: the request failed.
        """
        return self._call("GET", f"{path}?{urlencode(query)}" if query else path, None)

    def send(self, method: str, path: str, body: Mapping[str, object]) -> Any:
        """Send a JSON body, and return the parsed answer.

        Raises:
            InfrastructureError: the request failed.
        """
        return self._call(method, path, body)

    def _call(self, method: str, path: str, body: Mapping[str, object] | None) -> Any:
        args = ["gh", "api", "--method", method, f"repos/{self.repository}/{path}"]
        with tempfile.TemporaryFile() as stdin, tempfile.TemporaryDirectory() as directory:
            if body is not None:
                args += ["--input", "-"]
                stdin.write(json.dumps(body).encode())
                stdin.seek(0)
            try:
                completed = processes.run(
                    args,
                    env={**environ.everything(), processes.MARK: str(Path(directory))},
                    stdin=stdin,
                    on_line=lambda _: None,
                    capture_stdout=True,
                    capture_stderr=True,
                )
            except OSError as error:
                raise InfrastructureError(f"`gh` cannot be started: {error}. Install GitHub's command line") from None
        if completed.returncode != 0:
            problem = " ".join(clean(completed.stderr or "").split())
            raise InfrastructureError(
                f"GitHub refused {method} {path}: {truncate(problem, _LONGEST_ERROR) or 'no message'}\n"
                "  check $GH_TOKEN, and the `permissions` of the job"
            )
        try:
            return json.loads(completed.stdout or "null")
        except ValueError:
            raise InfrastructureError(f"GitHub answered {method} {path} with a text that is not JSON") from None


def from_environment() -> CommandLineApi:
    """Return the API of the repository that `$GITHUB_REPOSITORY` names."""
    return CommandLineApi(environ.get("GITHUB_REPOSITORY") or "")


def segment(text: str) -> str:
    """Return a text as one segment of a path."""
    return quote(text, safe="")


def mapping(value: Any) -> Mapping[str, Any]:
    """Return a part of an answer that should be an object; an empty mapping if it is something else."""
    return value if isinstance(value, Mapping) else {}
