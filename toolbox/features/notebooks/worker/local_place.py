"""Runs kernels and checks on this machine, with the environment and the limits of the settings."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolbox.ground.kit.own_cgroups import OomCounter

from . import cpu_reservation, environments, local_kernels, program_variables, worker_processes
from .execution_place import Ended, PlaceError, RunningKernel
from .notebook_results import Fault
from .notebook_settings import Limits, Runtime, Settings
from .temporary_directories import temporary_directory

LAUNCHER: Final = Path(__file__).with_name("limits_launcher.py")
_SIGKILL: Final = -9


@contextmanager
def opened(settings: Settings, environment: Path | None, directory: Path) -> Iterator[LocalPlace]:
    """Reserve the processors that the settings ask for, and provide the place while the context is active.

    Args:
        environment: the virtual environment of the runtime; None if the runtime has none.
        directory: the working directory of the worker.
    """
    with ExitStack() as resources:
        cpus = None
        if settings.limits.cpus is not None:
            locks = environments.directory(settings.environments) / "cpus"
            cpus = tuple(resources.enter_context(cpu_reservation.reserved(settings.limits.cpus, locks)))
        # The sockets of kernels are here: the path of a socket may have only 107 bytes.
        private = resources.enter_context(temporary_directory())
        yield LocalPlace(settings.runtime, settings.limits, environment, directory, private, cpus)


@dataclass(frozen=True)
class LocalPlace:
    """Runs the kernels and checks of a runtime on this machine. Implements `Place`.

    Args:
        environment: the virtual environment of the runtime; None if the runtime has none.
        directory: the working directory of the worker, in which a check gets a directory of its own.
        private: a short-lived directory that no other user can read.
        cpus: the processors that programs may use; None for all.
    """

    runtime: Runtime
    limits: Limits
    environment: Path | None
    directory: Path
    private: Path
    cpus: tuple[int, ...] | None

    def kernel(self, directory: Path) -> AbstractContextManager[RunningKernel]:
        """Start a kernel of the runtime in a directory."""
        specification = local_kernels.find(self.runtime.kernel, self._interpreter())
        return local_kernels.started(
            specification, directory, launcher=self._launcher(), variables=self._variables(), private=self.private
        )

    def shell(self, script: str, variables: Mapping[str, str], *, timeout: float) -> Ended:
        """Run a script with bash, in an empty directory."""
        bash = shutil.which("bash")
        if bash is None:
            raise PlaceError(Fault.ENVIRONMENT, "the machine has no bash, which shell checks need")
        return self._run([bash, "--norc", "--noprofile"], script, variables, timeout)

    def python(self, source: str, *, timeout: float) -> Ended:
        """Run a program with the Python of the runtime, in an empty directory."""
        specification = local_kernels.find(self.runtime.kernel, self._interpreter()) if self.runtime.kernel else None
        python = specification.python if specification else self._interpreter()
        if python is None:
            raise PlaceError(Fault.NO_KERNEL, f"the kernel {self.runtime.kernel} is not a Python kernel")
        return self._run([python], source, {}, timeout)

    def _interpreter(self) -> str:
        """Return the path of the Python of the runtime."""
        if self.environment is not None:
            return str(self.environment / "bin/python")
        if python := shutil.which(self.runtime.python):
            return python
        raise PlaceError(Fault.NO_KERNEL, f"the machine has no {self.runtime.python}, the Python of the runtime")

    def _run(self, command: Sequence[str], source: str, variables: Mapping[str, str], timeout: float) -> Ended:
        kills = OomCounter(else_machine=True)
        try:
            with tempfile.TemporaryDirectory(prefix=".check-", dir=self.directory, ignore_cleanup_errors=True) as empty:
                program = self.private / "program"
                program.write_text(source, encoding="utf-8", errors="surrogateescape")
                end = worker_processes.run(
                    [*self._launcher(), *command, str(program)],
                    environment={**self._variables(), **variables},
                    directory=Path(empty),
                    timeout=timeout,
                    output_bytes=self.limits.output_bytes,
                )
        except ValueError as error:  # a null byte in a variable
            raise PlaceError(Fault.INTERNAL, f"the check cannot be started: {error}") from None
        return self._ended(end, kills)

    def _ended(self, end: worker_processes.ProgramEnd, kills: OomCounter) -> Ended:
        stdout, stderr = (data.decode("utf-8", "replace") for data in (end.stdout, end.stderr))
        fault, message = end.fault, ""
        if fault is Fault.TOO_MUCH_OUTPUT:
            message = f"the check printed more than {self.limits.output_bytes} bytes"
        elif fault is None and end.status == _SIGKILL and kills.count():
            fault, message = Fault.OUT_OF_MEMORY, "the system killed the check because memory was exhausted"
        return Ended(end.status, stdout, stderr, fault, message)

    def _launcher(self) -> list[str]:
        """Return the beginning of a command that runs with the limits."""
        limits = {"cpus": self.cpus, "memory_bytes": self.limits.memory_bytes}
        return [sys.executable, "-I", "-S", str(LAUNCHER), json.dumps(limits)]

    def _variables(self) -> dict[str, str]:
        threads = len(self.cpus) if self.cpus is not None else None
        return program_variables.make(os.environ, private=self.private, environment=self.environment, threads=threads)
