"""Runs workloads on this machine: see `toolbox.targets.local_machine`."""

from __future__ import annotations

import platform
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from toolbox.ground.extensions.protocols import Backend
from toolbox.ground.model.workloads import TargetContext, Workload
from toolbox.targets.local_machine import LocalMachine


class Target(BaseModel):
    """This machine, which needs no settings."""

    model_config = ConfigDict(extra="forbid")
    keeps_attempts: ClassVar[bool] = False

    def open(self, context: TargetContext) -> Backend:
        """Return the backend for this machine."""
        return LocalMachine(context)

    def identity(self, name: str, workload: Workload) -> str | None:  # noqa: ARG002  # the protocol requires both
        """Return the name of this machine, its system, and its Python."""
        return f"local {platform.node()} {platform.platform()} {platform.python_version()}"

    def address(self, name: str) -> str | None:  # noqa: ARG002  # the protocol requires the parameter
        """Return None, which means this machine."""
        return None
