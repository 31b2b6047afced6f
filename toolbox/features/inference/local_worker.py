"""Runs the worker as a child process on this machine, against a server that is already running.

The directory of the worker is like that of an attempt: the settings and the cases in `src/`, its results in `files/`.
"""

from __future__ import annotations

import os
import re
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from toolbox.features.inference import client as inference_client
from toolbox.features.inference.client.server_addresses import AddressError, GrpcAddress
from toolbox.features.inference.client.worker_results import ANSWERED, INVALID_SETTINGS, NEVER_READY, SERVER_FAILED
from toolbox.features.inference.suites import ServerProtocol
from toolbox.ground.interface.signature import FlagGroup
from toolbox.ground.model.errors import StepError, ToolboxError, UsageError
from toolbox.ground.model.foreign_text import clean
from toolbox.ground.model.text import truncate
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.ground.system import environ, filesystem, places, processes
from toolbox.records.runs.layout import AttemptDirectory

_MAX_READY_SECONDS: Final = 10
_LONGEST_LINE: Final = 300
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PROGRAM: Final = (sys.executable, "-P", "-m", inference_client.__name__)
"""With -P, Python does not search the working directory for modules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer(FlagGroup):
    """How to reach a server: a group of flags.

    Args:
        url: the address of a server with the API of OpenAI, as http://HOST:PORT.
        grpc: the address of a server of TGIS's gRPC service, as HOST:PORT, or grpcs://HOST:PORT with TLS.
        model: the model of OpenAI requests without a field `model`. When left out, the first model that the server
            lists.
        api_key_variable: the name of the environment variable that contains the API key of the server.
        ca_file: a PEM file with the certificates of authorities to trust with TLS. When left out, the system's
            authorities.
    """

    url: str | None = None
    grpc: str | None = None
    model: str | None = None
    api_key_variable: str | None = None
    ca_file: Path | None = None

    def faults(self) -> list[str]:
        """Return what is wrong, each with the name of the option of the command line."""
        faults = []
        if self.url is None and self.grpc is None:
            faults.append("write --url=http://HOST:PORT or --grpc=HOST:PORT")
        if self.url is not None and not _is_plain_url(self.url):
            faults.append("--url must be http://HOST:PORT or https://HOST:PORT, without user, key or query")
        faults += self._grpc_faults()
        if self.model is not None and self.url is None:
            faults.append("--model has an effect only with --url")
        if self.api_key_variable is not None and not _VARIABLE.fullmatch(self.api_key_variable):
            faults.append("--api_key_variable must be the name of an environment variable, not the key itself")
        elif self.api_key_variable is not None and self.api_key is None:
            faults.append(f"--api_key_variable: the environment variable {self.api_key_variable} is not set")
        if self.ca_file is not None and not environ.expanded(self.ca_file).is_file():
            faults.append(f"--ca_file: {self.ca_file} is not a file")
        return faults

    def _grpc_faults(self) -> list[str]:
        try:
            if self.grpc is not None:
                address = GrpcAddress.parsed(self.grpc.replace("{", " "))  # there is no `{grpc_port}` to fill in
                if self.api_key_variable is not None:
                    address.check_key()
        except AddressError as error:
            return [str(error).replace("`grpc`", "--grpc")]
        return []

    @property
    def api_key(self) -> str | None:
        """The API key; None if there is none."""
        return environ.get(self.api_key_variable) if self.api_key_variable is not None else None

    @property
    def protocols(self) -> list[ServerProtocol]:
        """The protocols whose addresses are known."""
        addresses: dict[ServerProtocol, str | None] = {"openai": self.url, "fmaas": self.grpc}
        return [protocol for protocol, address in addresses.items() if address is not None]

    def settings(self, timeout: float) -> dict[str, Any]:
        """Return the field `server` of the settings of the worker, for requests with this time limit."""
        return {
            "url": self.url,
            "grpc": self.grpc,
            "model": self.model,
            "api_key_variable": self.api_key_variable,
            "ca_file": str(environ.expanded(self.ca_file).absolute()) if self.ca_file is not None else None,
            "ready": {"timeout": min(timeout, _MAX_READY_SECONDS)},
        }


@dataclass(frozen=True, slots=True)
class WorkerEnd:
    """How the worker ended.

    Args:
        status: its exit status (docs/inference_worker.md).
        message: the last line of its errors, or else of its output.
    """

    status: int
    message: str

    def error(self, directory: Path | None = None) -> ToolboxError | None:
        """Return the error that the exit status means; None for the status 0.

        Args:
            directory: the directory with the evidence.
        """
        if self.status == ANSWERED:
            return None
        if self.status == INVALID_SETTINGS:
            return UsageError(self.message)
        if self.status == SERVER_FAILED:
            return StepError(self.message, verdict=Verdict.FAILED, cause=Cause.PRODUCT, directory=directory)
        if self.status == NEVER_READY:
            return StepError(self.message, directory=directory)
        return StepError(f"the worker ended with status {self.status}: {self.message}", directory=directory)


def run(
    directory: Path,
    settings: Mapping[str, Any],
    cases: Mapping[str, Any],
    *,
    say: Callable[[str], object],
    program: Sequence[str] = _PROGRAM,
) -> WorkerEnd:
    """Run the worker to its end.

    Args:
        directory: where the files are written.
        settings: the settings but `cases`.
        cases: the content of `cases.json`.
        say: called with each line that the worker prints.
        program: the command line of the worker, without the settings.
    """
    source = filesystem.make_directory(AttemptDirectory(directory).sources)
    filesystem.write_json(source / "settings.json", {**settings, "cases": "cases.json"})
    filesystem.write_json(source / "cases.json", cases)
    output, errors = deque([""], maxlen=1), deque([""], maxlen=1)

    def receive(text: str, last: deque[str]) -> None:
        line = truncate(clean(text).removeprefix("inference_client: "), _LONGEST_LINE)
        last.append(line)
        say(line)

    completed = processes.run(
        [*program, "../src/settings.json"],
        env=processes.environment(directory, {"PYTHONPATH": _python_path()}),
        cwd=filesystem.make_directory(AttemptDirectory(directory).results),
        on_line=lambda line: receive(line, output),
        on_error_line=lambda line: receive(line, errors),
    )
    return WorkerEnd(completed.returncode, errors[0] or output[0])


def _python_path() -> str:
    return os.pathsep.join(filter(None, [str(places.PACKAGE.parent), environ.get("PYTHONPATH")]))


def _is_plain_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        has_host = parts.hostname is not None and (parts.port is None or parts.port > 0)
    except ValueError:
        return False
    is_plain = "@" not in parts.netloc and not parts.query and not parts.fragment and "{" not in text
    return parts.scheme in {"http", "https"} and has_host and is_plain and text.isprintable() and " " not in text
