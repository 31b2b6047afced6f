"""Runs workloads on this machine. An agent runs them, as on other machines, so that they outlive the orchestrator."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from pydantic import BaseModel, ConfigDict

from toolbox.extensions.protocols import Backend
from toolbox.hosts import bootstrap, staging
from toolbox.hosts.attempt_host import Host
from toolbox.model.workloads import AttemptStatus, Handle, TargetContext, Workload
from toolbox.runs.layout import AttemptDirectory
from toolbox.system import environ, processes
from toolbox.system.processes import Channel

_TIMEOUT: Final = 60.0  # the timeout in seconds of the request that cancels a workload


class Target(BaseModel):
    """This machine, which needs no settings."""

    model_config = ConfigDict(extra="forbid")
    keeps_attempts: ClassVar[bool] = False

    def open(self, context: TargetContext) -> Backend:
        """Return the backend for this machine."""
        inherited = tuple(processes.environment(context.mark).values())
        return _Local(context, inherited, Host(context.name, lambda: _launch(context), context.notify))

    def identity(self, name: str, workload: Workload) -> str | None:  # noqa: ARG002  # the protocol requires both
        """Return the name of this machine, its system, and its Python."""
        return f"local {platform.node()} {platform.platform()} {platform.python_version()}"

    def address(self, name: str) -> str | None:  # noqa: ARG002  # the protocol requires the parameter
        """Return None, which means this machine."""
        return None


@dataclass(frozen=True, slots=True)
class _Local:
    """Executes workloads in the directories of their attempts. `extensions.protocols.Backend` documents the methods.

    Args:
        inherited: the values of the environment variables that workloads inherit from the agent.
    """

    context: TargetContext
    inherited: tuple[str, ...]
    host: Host

    def submit(self, workload: Workload, name: str, directory: Path) -> Handle:
        timeout = workload.timeouts.wait
        variables = {"PATH": _search_path(), **self.context.variables}
        order = staging.order(workload, self.context, variables, self.inherited)
        with ExitStack() as stack:
            sources = None
            if self.host.is_unused(str(directory), timeout):
                sources = stack.enter_context(staging.staged(workload, directory))
            folder = str(sources) if sources is not None else None
            self.host.start(name, str(directory), order, sources=folder, mirror=None, timeout=timeout)
        return Handle(name, directory)

    def poll(self, handles: Iterable[Handle]) -> Mapping[Handle, AttemptStatus]:
        return {handle: self.host.status(str(handle.directory)) for handle in handles}

    def collect(self, handle: Handle, workload: Workload) -> None:
        # The files are already in the directory, so only remove the files that must not be kept.
        staging.discard_special_files(handle.directory)
        staging.remove_unmatched(AttemptDirectory(handle.directory).results, workload.collect)

    def cancel(self, handle: Handle) -> None:
        self.host.request("cancel", _TIMEOUT, directory=str(handle.directory))

    def release(self, handle: Handle) -> None:
        # The directory of the attempt is not removed, because it is part of the run directory.
        self.host.unwatch(str(handle.directory))

    def find(self, workload: Workload, name: str, directory: Path) -> Handle | None:
        exists = self.host.watch(name, str(directory), mirror=None, timeout=workload.timeouts.wait)
        return Handle(name, directory) if exists else None

    def close(self) -> None:
        self.host.close()


def _search_path() -> str:
    """Return $PATH with the directory of this interpreter first, so that `python3` has the same packages."""
    return os.pathsep.join([str(Path(sys.executable).parent), environ.get("PATH") or os.defpath])


def _launch(context: TargetContext) -> Channel:
    return Channel(bootstrap.command(sys.executable), processes.environment(context.mark))
