"""Runs a load on a server that is already running, with the worker as a child process on this machine.

The directory of a load is like that of an attempt: the settings and the requests in `src/`, the figures in `files/`.
"""

from __future__ import annotations

import os
import re
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

from toolbox.inference import cells, suites
from toolbox.inference.case_files import Case
from toolbox.inference.load_steps import Load
from toolbox.inference.suites import ServerProtocol
from toolbox.model.errors import StepError, UsageError
from toolbox.model.foreign_text import clean
from toolbox.model.text import truncate
from toolbox.model.verdicts import Cause, Verdict
from toolbox.system import environ, filesystem, processes

SAMPLES: Final = "files/load_samples.csv"
"""The file with one row for each request."""
_MOST_READY_SECONDS: Final = 10
_GRPC: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}")
_LONGEST_LINE: Final = 300
_WORKER: Final = (sys.executable, "-P", "-m", f"{cells.CLIENT.parent.name}.{cells.CLIENT.name}")
"""With -P, Python does not search the working directory for modules."""
_ENDED: Final = 0
_INVALID: Final = 2
_SERVER_FAILED: Final = 70
_NEVER_READY: Final = 75


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer:
    """How to reach a server, with either a URL or an address of gRPC.

    Args:
        url: the address of a server with the API of OpenAI.
        grpc: HOST:PORT of a server of `fmaas.GenerationService`.
        model: the name of the model for requests that name none; None for the first model that the server lists.
        api_key_variable: the environment variable that contains the API key.
    """

    url: str | None = None
    grpc: str | None = None
    model: str | None = None
    api_key_variable: str | None = None

    def faults(self) -> list[str]:
        """Return what is wrong, each with the name of the option of the command line."""
        faults = []
        if (self.url is None) == (self.grpc is None):
            faults.append("write either --url=http://HOST:PORT or --grpc=HOST:PORT")
        if self.url is not None and not _is_plain_url(self.url):
            faults.append("--url must be http://HOST:PORT or https://HOST:PORT, without user, key or query")
        if self.grpc is not None and not _GRPC.fullmatch(self.grpc):
            faults.append("--grpc must be HOST:PORT")
        if self.api_key_variable is not None and environ.get(self.api_key_variable) is None:
            faults.append(f"--api_key_variable: the environment variable {self.api_key_variable} is not set")
        return faults

    @property
    def protocol(self) -> ServerProtocol:
        """The protocol of the server."""
        return "openai" if self.url is not None else "fmaas"

    def settings(self, timeout: float) -> dict[str, Any]:
        """Return the field `server` of the settings of the worker, for requests with this time limit."""
        return {
            "url": self.url,
            "grpc": self.grpc,
            "model": self.model,
            "api_key_variable": self.api_key_variable,
            "ready": {"timeout": min(timeout, _MOST_READY_SECONDS)},
        }


@dataclass(frozen=True, slots=True)
class StandaloneLoad:
    """A load that can run: the settings of the worker, and the requests to send."""

    settings: Mapping[str, Any]
    cases: Mapping[str, Any]

    @classmethod
    def of(cls, server: RunningServer, load: Load, cases: Sequence[Case], *, timeout: float) -> Self:
        """Return a load with the requests of the cases that are fit for it.

        Args:
            timeout: the time in seconds in which an answer must be complete.

        Raises:
            UsageError: no case is fit for the load.
        """
        sent, expectations = suites.describe_load(cases, protocols=[server.protocol])
        if not sent["cases"]:
            raise UsageError(f"--cases: no case is left for the load ({suites.skip_reasons(expectations)})")
        settings = {"server": server.settings(timeout), "cases": "cases.json", "timeout": timeout}
        return cls({**settings, "load": load.settings}, sent)

    def run(self, directory: Path, *, say: Callable[[str], object], program: Sequence[str] | None = None) -> None:
        """Run the worker to its end.

        Args:
            directory: where the files are written.
            say: called with each line that the worker prints.
            program: the command line of the worker, without the settings.

        Raises:
            UsageError: the worker refused the settings or a request.
            StepError: the worker did not measure all steps. The message contains its last line.
        """
        source = filesystem.make_directory(directory / "src")
        filesystem.write_json(source / "settings.json", self.settings)
        filesystem.write_json(source / "cases.json", self.cases)
        last = deque([""], maxlen=1)

        def on_line(text: str) -> None:
            line = truncate(clean(text).removeprefix("inference_client: "), _LONGEST_LINE)
            last.append(line)
            say(line)

        completed = processes.run(
            [*(program or _WORKER), "../src/settings.json"],
            env=processes.environment(directory, {"PYTHONPATH": _python_path()}),
            cwd=filesystem.make_directory(directory / "files"),
            on_line=on_line,
        )
        if completed.returncode != _ENDED:
            raise _error(completed.returncode, last[0], directory)


def _python_path() -> str:
    return os.pathsep.join(filter(None, [str(cells.CLIENT.parents[1]), environ.get("PYTHONPATH")]))


def _error(status: int, message: str, directory: Path) -> UsageError | StepError:
    if status == _INVALID:
        return UsageError(message)
    if status == _SERVER_FAILED:
        return StepError(message, verdict=Verdict.FAILED, cause=Cause.PRODUCT, directory=directory)
    if status == _NEVER_READY:
        return StepError(message, directory=directory)
    return StepError(f"the worker ended with status {status}: {message}", directory=directory)


def _is_plain_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        has_host = parts.hostname is not None and (parts.port is None or parts.port > 0)
    except ValueError:
        return False
    is_plain = "@" not in parts.netloc and not parts.query and not parts.fragment and "{" not in text
    return parts.scheme in {"http", "https"} and has_host and is_plain and text.isprintable() and " " not in text
