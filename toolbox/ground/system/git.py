"""Asks git which commit a revision of a repository is, and which files it has. Nothing here changes a repository.

The address of a repository and the revision may come from a comment on a pull request. They are validated, so that git
cannot mistake them for options, for other transports (`ext::`), or for several revisions.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from toolbox.ground.model.errors import ConfigurationError, InfrastructureError
from toolbox.ground.model.foreign_text import printable
from toolbox.ground.model.secrets import Secret
from toolbox.ground.model.text import abbreviated, truncate
from toolbox.ground.system import cancellation, environ, processes

log = logging.getLogger(__name__)

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REVISION = re.compile(r"[0-9A-Za-z][0-9A-Za-z._/+@-]{0,199}")  # `git check-ref-format` allows a few more characters
_SCP = re.compile(r"(?:\w[\w.-]*@)?\w[\w.-]*:[^\s:][^\s]*", re.ASCII)
_OF_REPOSITORY: Final = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY")
# What git says about a folder without a repository, and about a repository without a commit.
_WITHOUT_COMMIT: Final = ("not a git repository", "bad revision 'HEAD'", "Not a valid object name HEAD")
_MAX_LINES: Final = 100
_MAX_FILES: Final = 200_000
_MAX_SECONDS: Final = 120.0
_SCHEMES: Final = ("https", "ssh", "git+ssh")
_VARIABLE: Final = "TOPGALLANT_GIT_TOKEN"
_ASKED: Final = ("refs/tags/{}^{{}}", "refs/tags/{}", "refs/heads/{}")  # of an annotated tag, `^{}` is the commit
_ENVIRONMENT: Final = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "https:ssh:file",
    "GIT_HTTP_LOW_SPEED_LIMIT": "1",  # bytes per second
    "GIT_HTTP_LOW_SPEED_TIME": "60",  # seconds
}


def repository_fault(text: str) -> str:
    """Return why a text is not the address of a repository; empty if it is one.

    An address is an HTTPS or SSH URL, `USER@HOST:PATH`, or an absolute path.
    """
    if not text.isprintable() or any(character.isspace() for character in text):
        return "must not contain spaces or control characters"
    if text.startswith("/"):
        return ""
    if "://" not in text:
        return "" if _SCP.fullmatch(text) and "::" not in text else _expected(text)
    try:
        url = urlsplit(text)
        is_address = url.scheme in _SCHEMES and bool(url.hostname) and not (url.hostname or "").startswith("-")
    except ValueError:
        is_address = False
    if not is_address:
        return _expected(text)
    if url.password is not None or (url.username and url.scheme == "https"):
        return "must not contain a user or a password: put a token into the field for tokens"
    return ""


def revision_fault(text: str) -> str:
    """Return why a text is not a revision; empty if it is one: a commit, a branch, a tag or `refs/...`."""
    is_name = _REVISION.fullmatch(text) and not any(part in text for part in ("..", "@{", "//", ".lock/"))
    if is_name and not text.endswith((".", "/", ".lock")):
        return ""
    return f"must be a commit, a branch, a tag or a name such as refs/pull/12/head, not {abbreviated(text)}"


def commit_of(repository: str, revision: str, *, token: Secret | None = None) -> str:
    """Return the id of the commit that a revision of a repository names. A complete id needs no request.

    Args:
        repository: a URL, or the absolute path of a directory.
        token: a token for HTTPS, which only the host of the URL gets.

    Raises:
        ConfigurationError: the address or the revision is wrong, or the repository has no such revision.
        InfrastructureError: the repository cannot be read.
    """
    if fault := repository_fault(repository):
        raise ConfigurationError(f"the repository {fault}")
    if fault := revision_fault(revision):
        raise ConfigurationError(f"the revision {fault}")
    if _COMMIT.fullmatch(revision):
        return revision
    if repository.startswith("/"):
        return _local(Path(repository), revision)
    names = (
        [revision] if revision == "HEAD" or revision.startswith("refs/") else [each.format(revision) for each in _ASKED]
    )
    refs = _remote_refs(repository, names, token)
    commits = {name: refs[name] for name in names if name in refs}
    if "refs/heads/" + revision in commits and len(commits) > 1:
        raise ConfigurationError(
            f"{revision} is a branch and a tag of {repository}: write refs/heads/{revision} or refs/tags/{revision}"
        )
    if not commits:
        raise ConfigurationError(
            f"{repository} has no branch and no tag {revision}: check the name. For a commit, write its complete id"
        )
    return next(iter(commits.values()))


def files_of(directory: Path, commit: str) -> frozenset[str]:
    """Return the paths of the files of a commit, if the repository that contains a directory has the commit.

    The result is empty without git, without a repository, and without the commit. Paths that git must quote, because
    they have control characters or quotation marks, are left out.
    """
    if not _COMMIT.fullmatch(commit):
        return frozenset()
    options = ["-C", str(directory), "-c", "core.quotePath=false"]
    try:
        output = _git(
            [*options, "ls-tree", "-r", "--full-tree", "--name-only", commit], str(directory), most=_MAX_FILES
        )
    except (ConfigurationError, InfrastructureError):
        return frozenset()
    return frozenset(line for line in output.split("\n") if line and not line.startswith('"'))


def revision_of(folder: Path, run_directory: Path) -> str | None:
    """Return the Git revision of the folder, with `+` appended if there are uncommitted changes.

    If git refuses to read the checkout, for example because it has another owner, log the reason and return None.
    """
    command = ["git", "-C", str(folder), "describe", "--always", "--abbrev=40", "--dirty=+", "--exclude=*"]
    try:
        completed = processes.run(
            command,
            env=processes.environment(processes.apart(run_directory), {"LC_ALL": "C.UTF-8"}),
            on_line=lambda _: None,
            capture_stdout=True,
            capture_stderr=True,
        )
    except OSError:
        return None
    errors = [line.strip() for line in (completed.stderr or "").splitlines() if line.strip()]
    if completed.returncode and not any(known in line for line in errors for known in _WITHOUT_COMMIT):
        reason = "\n".join(truncate(line, 300) for line in errors[-3:])
        log.warning("the revision of the project is unknown, because git cannot read %s: %s", folder, reason)
    return (completed.stdout or "").strip() or None


def _expected(text: str) -> str:
    return f"must be an HTTPS or SSH URL, USER@HOST:PATH or an absolute path, not {abbreviated(text)}"


def _local(directory: Path, revision: str) -> str:
    arguments = ["-C", str(directory), "rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}"]
    try:
        commit = _git(arguments, str(directory)).strip()
    except InfrastructureError as error:
        raise ConfigurationError(f"the repository {directory} has no revision {revision}: {error}") from None
    if not _COMMIT.fullmatch(commit):
        raise InfrastructureError(f"git returned {abbreviated(commit)} for {revision} of {directory}")
    return commit


def _remote_refs(repository: str, names: list[str], token: Secret | None) -> dict[str, str]:
    """Return the commits of the references with these names, as far as the repository has them."""
    credentials, variables = _credentials(repository, token)
    output = _git([*credentials, "ls-remote", "--quiet", "--", repository, *names], repository, variables)
    rows = [line.split("\t") for line in output.splitlines() if line.count("\t") == 1]
    return {name: commit for commit, name in rows if _COMMIT.fullmatch(commit)}


def _credentials(repository: str, token: Secret | None) -> tuple[list[str], dict[str, str]]:
    """Return the options and variables with which git gives a token to the host of a repository, and to no other."""
    if token is None or not repository.startswith("https://"):
        return [], {}
    url = urlsplit(repository)
    helper = f"""!f() {{ test "$1" = get && printf 'username=x-access-token\\npassword=%s\\n' "${_VARIABLE}"; }}; f"""
    origin = f"credential.https://{url.netloc}"
    return ["-c", f"{origin}.helper=", "-c", f"{origin}.helper={helper}"], {_VARIABLE: token.reveal()}


def _git(
    arguments: list[str], repository: str, variables: Mapping[str, str] | None = None, *, most: int = _MAX_LINES
) -> str:
    """Return the output of git.

    Args:
        most: the maximum number of lines.

    Raises:
        ConfigurationError: git is not installed.
        InfrastructureError: git failed, or the server did not answer in time.
    """
    inherited = processes.environment(processes.apart(environ.state_directory()))
    # A git hook sets these variables, and they name another repository.
    environment = {name: value for name, value in inherited.items() if name not in _OF_REPOSITORY}
    lines: list[str] = []
    errors: deque[str] = deque(maxlen=_MAX_LINES)

    def collect(line: str) -> None:
        if len(lines) == most:
            raise InfrastructureError(f"{repository} cannot be read: git printed more than {most} lines")
        lines.append(line)

    try:
        with cancellation.limited(_MAX_SECONDS):
            completed = processes.run(
                ["git", *arguments],
                env={**environment, **_ENVIRONMENT, **(variables or {})},
                on_line=collect,
                on_error_line=errors.append,
            )
    except TimeoutError:
        raise InfrastructureError(f"{repository} cannot be read: git did not end within {_MAX_SECONDS:g} s") from None
    except FileNotFoundError:
        raise ConfigurationError("git is not installed: install it, or write the complete id of the commit") from None
    if completed.returncode == 0:
        return "\n".join(lines)
    texts = [printable(line) for line in errors if line.strip()]
    reason = truncate(texts[-1] if texts else f"git ended with status {completed.returncode}", 300)
    raise InfrastructureError(f"{repository} cannot be read: {reason}")
