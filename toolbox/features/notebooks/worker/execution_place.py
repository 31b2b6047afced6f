"""The interface between the tests and the place where kernels and checks run: this machine, or a Jupyter server."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from .notebook_results import Fault


@dataclass(frozen=True)
class Ended:
    """How a program, a script or a kernel ended.

    Args:
        status: the exit status; negative for a signal; None if it is unknown.
        fault: why it was ended, such as TIMEOUT or OUT_OF_MEMORY; None if it ended by itself.
        message: the details of the fault.
    """

    status: int | None
    stdout: str = ""
    stderr: str = ""
    fault: Fault | None = None
    message: str = ""


class RunningKernel(Protocol):
    """A kernel that a notebook uses.

    Args:
        manager: a kernel manager for nbclient, an `AsyncKernelManager` of jupyter_client or an object like it. The
            kernel runs, and nbclient must not start or stop it.
    """

    @property
    def manager(self) -> Any:
        """The kernel manager."""

    def ended(self) -> Ended | None:
        """Return how the kernel ended; None while it runs. A kernel that was restarted has ended."""

    def sampling(self, path: Path, seconds: float) -> AbstractContextManager[object]:
        """Write samples of the resource use of the kernel's processes to a CSV file while the context is active."""


class Place(Protocol):
    """Where kernels and checks run, with the limits of the settings."""

    def kernel(self, directory: Path) -> AbstractContextManager[RunningKernel]:
        """Start a kernel of the runtime, and always shut it down at the end of the context.

        Args:
            directory: a directory of this machine whose files the kernel needs in its working directory. Files that
                the kernel creates or changes are in this directory after the context.

        Raises:
            PlaceError: the kernel does not exist, or does not start.
        """

    def shell(self, script: str, variables: Mapping[str, str], *, timeout: float) -> Ended:
        """Run a script with bash, in the environment of the runtime.

        Raises:
            PlaceError: the script cannot be started.
        """

    def python(self, source: str, *, timeout: float) -> Ended:
        """Run a Python program with the Python of the runtime.

        Raises:
            PlaceError: the runtime has no Python, or its Python cannot be started.
        """


class PlaceError(Exception):
    """A place cannot do what a test needs.

    Args:
        fault: NO_KERNEL, SERVER, ENVIRONMENT, and so on.
    """

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(message)
        self.fault = fault
