"""This machine: runs workloads through an agent, as on any other machine, so that they outlive the orchestrator."""

from __future__ import annotations

import os
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

_TIMEOUT: Final = 60.0  # seconds to reach an agent on this machine


class Target(BaseModel):
    """This machine. It needs no settings."""

    model_config = ConfigDict(extra="forbid")
    keeps_attempts: ClassVar[bool] = False

    def open(self, context: TargetContext) -> Backend:
        """Return the backend of this machine."""
        inherited = tuple(processes.environment(context.mark).values())
        return _Local(context, inherited, Host(context.name, lambda: _launch(context), context.notify))

    def address(self, name: str) -> str | None:  # noqa: ARG002  # a backend of other machines needs it
        """Return the address for Ansible: none, because the target is this machine."""
        return None


@dataclass(frozen=True, slots=True)
class _Local:
    """Executes workloads in the directories of their attempts.

    Args:
        inherited: the values of the environment variables that a workload inherits from the agent.
    """

    context: TargetContext
    inherited: tuple[str, ...]
    host: Host

    def submit(self, workload: Workload, name: str, directory: Path) -> Handle:
        """See `Backend`."""
        wait = workload.timeouts.wait
        variables = {"PATH": _search_path(), **self.context.variables}
        order = staging.order(workload, self.context, variables, self.inherited)
        with ExitStack() as stack:
            sources = None
            if self.host.is_new(str(directory), wait):
                sources = stack.enter_context(staging.staged(workload, directory))
            there = str(sources) if sources is not None else None
            self.host.start(name, str(directory), order, sources=there, mirror=None, wait=wait)
        return Handle(name, directory)

    def poll(self, handles: Iterable[Handle]) -> Mapping[Handle, AttemptStatus]:
        """See `Backend`."""
        return {handle: self.host.status(str(handle.directory)) for handle in handles}

    def collect(self, handle: Handle, workload: Workload) -> None:
        """See `Backend`. All files are here already: remove those that another machine would not send."""
        staging.discard_special_files(handle.directory)
        staging.keep(AttemptDirectory(handle.directory).results, workload.collect)

    def cancel(self, handle: Handle) -> None:
        """See `Backend`."""
        self.host.ask("cancel", _TIMEOUT, directory=str(handle.directory))

    def release(self, handle: Handle) -> None:
        """See `Backend`. The directory belongs to the run, and stays."""
        self.host.forget(str(handle.directory))

    def find(self, workload: Workload, name: str, directory: Path) -> Handle | None:
        """See `Backend`."""
        found = self.host.watch(name, str(directory), mirror=None, wait=workload.timeouts.wait)
        return Handle(name, directory) if found else None

    def close(self) -> None:
        """See `Backend`."""
        self.host.close()


def _search_path() -> str:
    """Return $PATH with our interpreter first: `python3` is the one that has the installed packages."""
    return os.pathsep.join([str(Path(sys.executable).parent), environ.get("PATH") or os.defpath])


def _launch(context: TargetContext) -> Channel:
    # The agent needs no installed packages. Without them Python starts in half the time.
    return Channel(bootstrap.command(sys.executable, "-I", "-S"), processes.environment(context.mark))
