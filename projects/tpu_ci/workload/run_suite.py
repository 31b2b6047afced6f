"""Runs a test suite of a Git repository: fetches one commit, makes an environment, and runs the suite's commands.

The script needs git and Python 3.8 or later, and no package. It reads `settings.json` beside it, works in the current
directory, and leaves only `results/` there, which is the directory `$RESULTS` of the commands. The exit status is that
of the first command that failed; 2 for wrong settings; 3 if the environment cannot be made; 75 if the commit cannot be
fetched.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import List, Union

    Command = Union[str, List[str]]

WRONG_SETTINGS, NO_ENVIRONMENT = 2, 3
NO_REPOSITORY = 75  # EX_TEMPFAIL of sysexits.h. No command of a suite ends with this status: see `run_suite`
COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
ADDRESS = re.compile(r"(https://|ssh://|git\+ssh://|/)[^\s\x00-\x1f]+|(\w[\w.-]*@)?\w[\w.-]*:[^\s:-][^\s]*", re.ASCII)
REFERENCE = re.compile(r"refs/[0-9A-Za-z][0-9A-Za-z._/+@-]{0,199}")
STRICT_BASH = ["bash", "-o", "errexit", "-o", "nounset", "-o", "pipefail", "-c"]
TOKEN = "REPOSITORY_TOKEN"  # noqa: S105  # the name of the environment variable
TOKEN_PIPE = "REPOSITORY_TOKEN_PIPE"  # noqa: S105  # the name of the environment variable
NO_TOKEN = ("", "null")  # a field of the configuration that is null becomes the text "null"
# A repository must not execute anything when it is fetched: no hooks, no file monitors, no other transports.
GIT_OPTIONS = ["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "advice.detachedHead=false"]
# Tools for machine learning read the directories of their downloads and caches from these variables.
CACHES = {
    "XDG_CACHE_HOME": "cache",
    "PIP_CACHE_DIR": "pip",
    "HF_HOME": "huggingface",
    "JAX_COMPILATION_CACHE_DIR": "jax",
    "TORCH_HOME": "torch",
}


class Failure(Exception):
    """The suite cannot run. The message says why, and what to do."""

    def __init__(self, message: str, status: int = NO_ENVIRONMENT) -> None:
        super().__init__(message)
        self.status = status


class Settings:
    """The contents of `settings.json`, checked."""

    def __init__(self, content: dict[str, Any]) -> None:
        self.repository = self._text(content, "repository")
        self.commit = self._text(content, "commit")
        self.revision = self._text(content, "revision")
        self.python = self._text(content, "python")
        self.install = self._commands(content, "install")
        self.commands = self._commands(content, "commands")
        self.env = {str(name): str(value) for name, value in (content.get("env") or {}).items()}
        self.cache = content.get("cache")
        self.timeout = self._seconds(content, "timeout")
        self.submodules = content.get("submodules") is True
        self.makes_venv = content.get("venv") is True
        if not ADDRESS.fullmatch(self.repository) or "::" in self.repository:
            self._refuse("repository", "must be an HTTPS or SSH URL, USER@HOST:PATH or an absolute path")
        if not COMMIT.fullmatch(self.commit):
            self._refuse("commit", "must be the complete id of a commit")
        if not self.commands:
            self._refuse("commands", "must contain at least one command, or nothing would be tested")

    @staticmethod
    def _refuse(name: str, reason: str) -> NoReturn:
        raise Failure(f"the setting `{name}` {reason}", WRONG_SETTINGS)

    def _text(self, content: dict[str, Any], name: str) -> str:
        value = content.get(name)
        if not isinstance(value, str) or not value or "\0" in value or "\n" in value:
            self._refuse(name, "must be a line of text")
        return value

    def _seconds(self, content: dict[str, Any], name: str) -> float:
        value = content.get(name)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
            self._refuse(name, "must be a number of seconds above 0")
        return float(value)

    def _commands(self, content: dict[str, Any], name: str) -> list[Command]:
        commands = content.get(name) or []
        for command in commands if isinstance(commands, list) else [None]:
            is_list = isinstance(command, list) and command and all(isinstance(word, str) for word in command)
            if not is_list and not (isinstance(command, str) and command.strip()):
                self._refuse(name, "must be a list of commands, each a text for bash or a list of arguments")
        return list(commands)


def take_token() -> str:
    """Return the token for the repository; an empty text if there is none.

    The commands of the repository can read the environment with which this process started, in `/proc`. So this
    program executes itself again without the token in its environment, and receives the token by a pipe.
    """
    pipe, token = os.environ.pop(TOKEN_PIPE, ""), os.environ.pop(TOKEN, "")
    if not pipe and token not in NO_TOKEN:
        reader, writer = os.pipe()
        with os.fdopen(writer, "w", encoding="utf-8") as stream:
            stream.write(token)
        os.set_inheritable(reader, True)
        variables = {**os.environ, TOKEN_PIPE: str(reader)}
        os.execve(sys.executable, [sys.executable, *sys.argv], variables)  # noqa: S606  # this program
    if not pipe:
        return ""
    with os.fdopen(int(pipe), encoding="utf-8") as stream:
        return stream.read()


def fetch(settings: Settings, checkout: Path, token: str) -> None:
    """Fetch the commit into a new directory, without its history if the server allows this."""
    environment = dict(os.environ)
    for name in [name for name in environment if name.startswith("GIT_") and not name.startswith("GIT_CONFIG_")]:
        del environment[name]
    environment.update({"GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "https:ssh:file", TOKEN: token})
    command = ["git", *GIT_OPTIONS, *credentials(settings.repository, token)]
    git = Git(command, environment, settings.timeout)
    git.run(["init", "--quiet", "--template=", str(checkout)])
    git.command += ["-C", str(checkout)]
    options = ["--quiet", "--no-tags", "--no-recurse-submodules"]
    address = ["--", settings.repository]
    if git.run(["fetch", *options, "--depth=1", *address, settings.commit], check=False):
        say("the server does not send single commits: fetching all branches")
        branches = ["+refs/heads/*:refs/remotes/origin/*"]
        branches += [f"+{settings.revision}:refs/remotes/asked"] if REFERENCE.fullmatch(settings.revision) else []
        git.run(["fetch", *options, *address, *branches])
    git.run(["checkout", "--quiet", "--force", "--detach", settings.commit])
    if settings.submodules:
        environment["GIT_ALLOW_PROTOCOL"] = "https:ssh"
        git.run(["submodule", "update", "--quiet", "--init", "--recursive", "--depth=1"])


def credentials(repository: str, token: str) -> list[str]:
    """Return the options of git that give the token in `$REPOSITORY_TOKEN` to the host of the repository only."""
    if not token or not repository.startswith("https://"):
        return []
    origin = f"credential.https://{urlsplit(repository).netloc}"
    helper = '!f() { test "$1" = get && printf "username=x-access-token\\npassword=%s\\n" "$' + TOKEN + '"; }; f'
    return ["-c", f"{origin}.helper=", "-c", f"{origin}.helper={helper}"]


class Git:
    """Runs git. All commands together have a time limit, because a server may accept a request and never answer."""

    def __init__(self, command: list[str], environment: dict[str, str], timeout: float) -> None:
        self.command = command
        self._environment = environment
        self._timeout = timeout
        self._deadline = time.monotonic() + timeout

    def run(self, arguments: Sequence[str], check: bool = True) -> int:
        """Run a command of git, and return its exit status. With `check`, a status that is not 0 is a failure."""
        try:
            process = subprocess.Popen(
                [*self.command, *arguments],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,  # with the programs that git starts for a transport
            )
        except FileNotFoundError:
            message = "git is not installed on this machine: install it, for example in the startup script"
            raise Failure(message) from None
        try:
            errors = process.communicate(timeout=max(0.0, self._deadline - time.monotonic()))[1]
        except subprocess.TimeoutExpired:
            message = f"the repository was not fetched within {self._timeout:g} s (`repository.timeout`)"
            raise Failure(message, NO_REPOSITORY) from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        text = errors.decode("utf-8", "replace")
        print(text, end="", file=sys.stderr, flush=True)
        if check and process.returncode:
            reason = next((line for line in text.splitlines() if line.startswith(("fatal:", "error:"))), "see the log")
            message = f"`git {arguments[0]}` ended with status {process.returncode}: {reason}"
            raise Failure(message, NO_REPOSITORY)
        return process.returncode


def make_environment(settings: Settings, work: Path, results: Path) -> dict[str, str]:
    """Make the virtual environment and the directories for caches, and return the variables of the commands."""
    variables = {**os.environ, **settings.env, "RESULTS": str(results), "COMMIT": settings.commit}
    if settings.cache:
        root = Path(str(settings.cache)).expanduser()
        for name, folder in CACHES.items():
            variables.setdefault(name, str(root / folder))
            Path(variables[name]).mkdir(parents=True, exist_ok=True)
    if settings.makes_venv:
        venv = work / "venv"
        if execute([settings.python, "-m", "venv", str(venv)], variables, work):
            raise Failure(f"no virtual environment can be made with `{settings.python}`: install python3-venv")
        variables["VIRTUAL_ENV"] = str(venv)
        variables["PATH"] = os.pathsep.join([str(venv / "bin"), variables.get("PATH", os.defpath)])
        variables.pop("PYTHONHOME", None)
    return variables


def execute(command: Command, variables: dict[str, str], directory: Path) -> int:
    """Run a command, and return its exit status; 128 plus the number of the signal that ended it."""
    arguments = [*STRICT_BASH, command] if isinstance(command, str) else command
    say(f"$ {command if isinstance(command, str) else ' '.join(command)}")
    program = shutil.which(arguments[0], path=variables.get("PATH"))  # `run` would search the PATH of this process
    if program is None:
        print(f"the program `{arguments[0]}` is not installed", file=sys.stderr, flush=True)
        return 127
    completed = subprocess.run(
        [program, *arguments[1:]], env=variables, cwd=str(directory), stdin=subprocess.DEVNULL, check=False
    )
    return completed.returncode if completed.returncode >= 0 else 128 - completed.returncode


def run_suite(settings: Settings, work: Path, results: Path, token: str) -> int:
    """Fetch, install and test, and return the exit status of the first command that failed."""
    checkout = work / "repository"
    fetch(settings, checkout, token)
    say(f"the commit is {settings.commit} ({settings.revision}) of {settings.repository}")
    variables = make_environment(settings, work, results)
    for command in settings.install:
        if status := execute(command, variables, checkout):
            raise Failure(f"the environment cannot be made: a command of `install` ended with status {status}")
    failed = 0
    for number, command in enumerate(settings.commands, 1):
        if status := execute(command, variables, checkout):
            # Not on stderr, because its last line must be the error of the command.
            say(f"command {number} of {len(settings.commands)} ended with status {status}")
            failed = failed or (1 if status == NO_REPOSITORY else status)
    return failed


def say(text: str) -> None:
    """Print a line before the output of the next command."""
    print(text, flush=True)


def main(settings_file: str | None = None) -> int:
    """Run the suite of `settings.json`, and remove the checkout and the environment at the end."""
    token = take_token()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    file = Path(settings_file or Path(__file__).resolve().parent.parent / "settings.json")
    work, results = Path("work").absolute(), Path("results").absolute()
    try:
        settings = Settings(json.loads(file.read_text(encoding="utf-8")))
        results.mkdir(exist_ok=True)
        work.mkdir()
        return run_suite(settings, work, results, token)
    except Failure as failure:
        print(failure, file=sys.stderr, flush=True)
        return failure.status
    finally:
        shutil.rmtree(str(work), ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
