"""Runs workloads on this machine. As on other machines, an agent runs them, so that they continue if the orchestrator
is killed.

The backend `local` uses this module for all workloads. The backend `jupyterhub` uses it for the program that uses a
server.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from toolbox.ground.model.workloads import AttemptStatus, Handle, TargetContext, Workload
from toolbox.ground.system import environ, processes
from toolbox.ground.system.processes import Channel
from toolbox.records.runs.layout import AttemptDirectory
from toolbox.targets import bootstrap, staging
from toolbox.targets.host_attempts import HostAttempt, HostAttempts

_PROGRAMS: Final = str(Path(sys.executable).parent)
_TIMEOUT: Final = 60.0  # seconds for the request that cancels a workload


class LocalMachine:
    """Executes workloads in the directories of their attempts. `extensions.protocols.Backend` documents the methods."""

    def __init__(self, context: TargetContext) -> None:
        self._context = context
        # The values of the environment variables that workloads inherit from the agent.
        self._inherited = tuple(processes.environment(context.mark).values())
        self._host = HostAttempts(context.name, lambda: _launch(context), context.notify)

    def submit(self, workload: Workload, name: str, directory: Path) -> Handle:
        """See `Backend`."""
        attempt = self._attempt(workload, name, directory)
        variables = {"PATH": _search_path(), **self._context.variables}
        order = staging.order(workload, self._context, variables, self._inherited)
        with ExitStack() as stack:
            sources = None
            has_files = bool(workload.files or workload.text_files)
            if has_files and self._host.is_unused(attempt.remote, attempt.timeout):
                sources = stack.enter_context(staging.staged(workload, directory))
            self._host.start(attempt, order, sources=str(sources) if sources is not None else None)
        return attempt.handle

    def poll(self, handles: Iterable[Handle]) -> Mapping[Handle, AttemptStatus]:
        """See `Backend`."""
        return {handle: self._host.book[str(handle.directory)].status for handle in handles}

    def collect(self, handle: Handle, workload: Workload) -> None:
        """See `Backend`. The files are already in the directory: only remove the files that must not be kept."""
        staging.discard_special_files(handle.directory)
        staging.remove_unmatched(AttemptDirectory(handle.directory).results, workload.collect)

    def cancel(self, handle: Handle) -> None:
        """See `Backend`."""
        self._host.connection.request("cancel", _TIMEOUT, directory=str(handle.directory))

    def release(self, handle: Handle) -> None:
        """See `Backend`. The directory of the attempt is not removed, because it is part of the run directory."""
        self._host.book.forget(str(handle.directory))

    def find(self, workload: Workload, name: str, directory: Path) -> Handle | None:
        """See `Backend`."""
        attempt = self._attempt(workload, name, directory)
        return attempt.handle if self._host.watch(attempt) else None

    def close(self) -> None:
        """See `Backend`."""
        self._host.close()

    def _attempt(self, workload: Workload, name: str, directory: Path) -> HostAttempt:
        handle, limits = Handle(name, directory), workload.timeouts
        return HostAttempt(handle, str(directory), copies_logs=False, timeout=limits.wait, log_bytes=workload.log_bytes)


def _search_path() -> str:
    """Return $PATH with the directory of this interpreter first, so that `python3` has the same packages."""
    return os.pathsep.join([_PROGRAMS, environ.get("PATH") or os.defpath])


def _launch(context: TargetContext) -> Channel:
    return Channel(bootstrap.command(sys.executable), processes.environment(context.mark))
