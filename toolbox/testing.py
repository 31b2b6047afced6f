"""Runs command lines of Topgallant in a temporary workspace, to test a team's own projects, roles and commands.

    from toolbox.testing import Workspace

    def test_a_wrong_answer_fails_the_run(tmp_path):
        workspace = Workspace(tmp_path, {
            "projects/answer/orchestration.py": '''
                "Asks for the answer."
                from toolbox.api import config, run

                def test():
                    run.run(["test", config.project.get_config("answer"), "=", "42"])
            ''',
            "config/answer.yaml": "answer: '41'",
        })
        outcome = workspace.run("project", "run", "answer")
        assert outcome.exit_code == 1, str(outcome)
        assert workspace.summary()["cause"] == "product"

The command line runs in a separate process, whose working directory, artifacts and home directory are in the workspace.
The process also finds the projects, roles and commands that are beside `toolbox/`, unless the workspace has one of the
same name. Only tests import this module. It does not need pytest.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import site
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, Self

from toolbox.ground.system import environ, places, processes
from toolbox.records.runs import layout
from toolbox.records.runs.layout import RunDirectory

TIMEOUT_SECONDS: Final = 120.0
# Prefixes of environment variables that are not passed on, because they would make results depend on the machine.
_REMOVED_VARIABLES: Final = (
    "ANSIBLE_",
    "TOPGALLANT_",
    environ.ARTIFACT_DIR,
    "COLUMNS",
    "FORCE_COLOR",
    "TTY_",
    "XDG_",
    "BUILD_URL",
    "CI",
    "GITHUB_",
    "JOB_NAME",
    "TF_BUILD",
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The output and the exit code of a command line. `str()` returns both, for the message of an assertion.

    Args:
        exit_code: the exit status; for a process that a signal killed, the negative number of the signal.
    """

    args: tuple[str, ...]
    exit_code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """The parsed output of a command with `--format=json`."""
        return json.loads(self.stdout)

    def __str__(self) -> str:
        return f"$ {shlex.join(self.args)}\n{self.stdout}{self.stderr}[exit code {self.exit_code}]"


class Workspace:
    """A workspace with `projects/`, `config/`, `command_args/`, `roles/` and `commands/`, like a team's repository.

    Args:
        directory: the root of the workspace, which is created if necessary.
        files: the texts of files to write, by their paths in the workspace.
    """

    def __init__(self, directory: Path, files: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.home = directory / ".home"
        for folder in (directory / "projects", self.home):
            folder.mkdir(parents=True, exist_ok=True)
        self.write(files or {})

    @property
    def artifacts(self) -> Path:
        """The default directory for runs."""
        return self.directory / places.ARTIFACTS

    def write(self, files: Mapping[str, str]) -> Self:
        """Write texts by their paths in the workspace. Common indentation is removed from each text."""
        for name, text in files.items():
            file = self.directory / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
        return self

    def run(
        self,
        *argv: str,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        timeout: float = TIMEOUT_SECONDS,
    ) -> Outcome:
        """Run a command line, and wait until it ends: `run("project", "run", "answer")`.

        Args:
            env: environment variables in addition to those of this process.
            cwd: the working directory; by default, the workspace.
            timeout: the time limit in seconds.

        Raises:
            TimeoutError: the command line exceeded the time limit, and was killed.
        """
        with self.start(*argv, env=env, cwd=cwd) as running:
            return running.wait(timeout)

    def start(self, *argv: str, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> Running:
        """Start a command line without waiting for its end.

        Args:
            env: environment variables in addition to those of this process.
            cwd: the working directory; by default, the workspace.
        """
        variables = {
            **{name: value for name, value in environ.everything().items() if not name.startswith(_REMOVED_VARIABLES)},
            "HOME": str(self.home),
            "PYTHONUSERBASE": site.getuserbase(),  # keep the user's packages, which Python searches in $HOME by default
            "TOPGALLANT_NO_VENV": "1",  # use the interpreter of the tests, not the virtual environment of the checkout
            **(env or {}),
        }
        return Running([*_command_line(), *argv], self.directory, variables, cwd=cwd)

    def runs(self, artifacts: Path | None = None) -> list[Path]:
        """Return the run directories in `artifacts`, by default in the artifacts of the workspace, oldest first."""
        return [run for run in layout.runs(artifacts or self.artifacts) if not run.is_symlink()]

    def run_directory(self, artifacts: Path | None = None) -> Path:
        """Return the directory of the only run."""
        runs = self.runs(artifacts)
        assert len(runs) == 1, f"one run was expected, but there are {len(runs)}: {[path.name for path in runs]}"
        return runs[0]

    def summary(self, artifacts: Path | None = None) -> dict[str, Any]:
        """Return the content of `summary.json` of the only run."""
        text = RunDirectory(self.run_directory(artifacts)).summary.read_text(encoding="utf-8")
        summary: dict[str, Any] = json.loads(text)
        return summary

    def holding(self, text: str) -> list[Path]:
        """Return the files in the artifacts whose content or name contains a text, for example a leaked secret."""
        return [
            path
            for path in sorted(self.artifacts.rglob("*"))
            if text in path.name or (path.is_file() and text.encode() in path.read_bytes())
        ]


class Running:
    """A command line that was started. If its process still runs at the end of the `with` block, it is killed."""

    def __init__(self, args: list[str], directory: Path, env: Mapping[str, str], *, cwd: Path | None = None) -> None:
        self._args = tuple(args)
        self._directory = directory.resolve()
        self._process = _start(args, cwd or directory, env)
        self._news = threading.Condition()
        self._stdout = _Stream(self._process.stdout, self._news)
        self._stderr = _Stream(self._process.stderr, self._news)

    @property
    def pid(self) -> int:
        """The process id of the command line."""
        return self._process.pid

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process of the command line, but not to its child processes."""
        self._process.send_signal(number)

    def wait_for(self, text: str, timeout: float = TIMEOUT_SECONDS) -> str:
        """Wait until the command line has printed a line that contains a text, and return the line.

        Raises:
            TimeoutError: the line was not printed within the timeout in seconds.
            AssertionError: the command line ended and did not print such a line.
        """
        deadline = time.monotonic() + timeout
        with self._news:
            while True:
                lines = [*self._stdout.lines, *self._stderr.lines]
                if (line := next((line for line in lines if text in line), None)) is not None:
                    return line.rstrip("\n")
                if self._stdout.ended and self._stderr.ended:
                    raise AssertionError(f"{text!r} was expected in the output of\n{self._outcome()}")
                if not self._news.wait(deadline - time.monotonic()):
                    raise TimeoutError(f"no {text!r} within {timeout:g} s in the output of\n{self._outcome()}")

    def wait(self, timeout: float = TIMEOUT_SECONDS) -> Outcome:
        """Wait until the command line ends, and return its outcome.

        Raises:
            TimeoutError: the command line exceeded the timeout in seconds, and was killed.
        """
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._kill()
            raise TimeoutError(f"still running after {timeout:g} s:\n{self._outcome()}") from None
        for stream in (self._stdout, self._stderr):
            stream.join(timeout)
        return self._outcome()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._kill()

    def _kill(self) -> None:
        """Kill the process group, and end all other processes of the workspace."""
        with suppress(ProcessLookupError):  # it has just ended
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        processes.end_marked(self._directory)
        for stream in (self._stdout, self._stderr):
            stream.join(1)

    def _outcome(self) -> Outcome:
        status = self._process.returncode
        stdout, stderr = "".join(self._stdout.lines), "".join(self._stderr.lines)
        return Outcome(self._args, status if status is not None else -1, stdout, stderr)


class _Stream:
    """Reads an output stream of a process in a separate thread, and notifies waiting threads of each line."""

    def __init__(self, stream: IO[bytes] | None, news: threading.Condition) -> None:
        assert stream is not None, "the process must be started with pipes"
        self.lines: list[str] = []
        self.ended = False
        self._news = news
        self._thread = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self._thread.start()

    def join(self, timeout: float) -> None:
        """Wait until the stream ends. A child process that still runs may keep the stream open after the timeout."""
        self._thread.join(timeout)

    def _read(self, stream: IO[bytes]) -> None:
        with stream:
            for line in stream:
                with self._news:
                    self.lines.append(line.decode("utf-8", errors="replace"))
                    self._news.notify_all()
        with self._news:
            self.ended = True
            self._news.notify_all()


def _start(args: Sequence[str], cwd: Path, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a program in a process session of its own. The tests of Topgallant replace this function."""
    return subprocess.Popen(
        args,
        cwd=cwd,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def _command_line() -> list[str]:
    """Return the command that starts Topgallant: the script of the checkout, or that of the installed package."""
    checkout = places.builtin_root() / "run_toolbox.py"
    if checkout.is_file():
        return [sys.executable, str(checkout)]
    return [str(Path(sys.executable).with_name("topgallant"))]
