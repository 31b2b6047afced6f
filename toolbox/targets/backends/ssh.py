"""Runs workloads on a machine that is reached by the user's OpenSSH, with the user's configuration and known hosts."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from toolbox.ground.extensions.protocols import Backend
from toolbox.ground.model import addresses
from toolbox.ground.model.addresses import Address
from toolbox.ground.model.workloads import TargetContext
from toolbox.targets.ssh_machine import Login, SshMachine


class Target(BaseModel):
    """A machine, and the paths to use on it.

    Args:
        host: the name or address of the machine, or its alias in `~/.ssh/config` (see
            `toolbox.ground.model.addresses`); None for the name of the target.
        user: the user to log in as; None for the user in the SSH configuration.
        port: the port of the SSH server; None for the port in the SSH configuration.
        python: the Python interpreter for the agent, version 3.8 or later.
        directory: the directory for attempts on the machine, as an absolute path or below `~/`.
    """

    model_config = ConfigDict(extra="forbid")
    keeps_attempts: ClassVar[bool] = True

    host: Annotated[str, AfterValidator(addresses.host)] | None = None
    user: Annotated[str, AfterValidator(addresses.user)] | None = None
    port: int | None = Field(default=None, ge=1, le=65535)
    python: str = Field(default="python3", min_length=1)
    directory: str = Field(default="~/.cache/topgallant/attempts", pattern=r"^(/|~/|~$)")

    def open(self, context: TargetContext) -> Backend:
        """Return the backend for this machine."""
        login = Login(self.host_or_name(context.name), self.user, self.port)
        return SshMachine(context, login, self.python, self.directory)

    def address(self, name: str) -> str | None:
        """Return the address of the machine as `[USER@]HOST[:PORT]`."""
        return str(Address(self.host_or_name(name), self.user, self.port))

    def host_or_name(self, name: str) -> str:
        """Return the configured host; if there is none, the name of the target.

        Raises:
            ValueError: no host is configured, and the name of the target is not a host.
        """
        return self.host or addresses.host(name)
