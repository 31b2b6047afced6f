"""Finds, starts and ends kernels on this machine."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from toolbox.ground.kit import exit_codes, process_tree
from toolbox.ground.kit.own_cgroups import OomCounter

from . import leftover_processes, pip_failures, use_sampler, worker_processes
from .execution_place import Ended, PlaceError
from .failure_texts import last_line
from .notebook_results import Fault
from .time_limits import SHUTDOWN_SECONDS, START_TIMEOUT

_PYTHON_NAME: Final = re.compile(r"python(3(\.\d+)?)?")
_NO_MEMORY: Final = re.compile(r"MemoryError|bad_alloc|[Cc]annot allocate memory|[Oo]ut of memory")
_SOCKET_DIRECTORY: Final = 90  # bytes; the path of a socket may have at most 107 bytes
_STDERR: Final = 1 << 16


@dataclass(frozen=True)
class KernelSpecification:
    """How a kernel is started.

    Args:
        python: the interpreter of a Python kernel; None for another language.
        argv: the command; `{connection_file}` in it is replaced.
    """

    name: str
    language: str
    argv: Sequence[str]
    env: Mapping[str, str]
    interrupt_mode: str
    python: str | None


def find(name: str | None, python: str) -> KernelSpecification:
    """Return a kernel of this machine.

    Args:
        name: the name of the kernel; None for the kernel of `python` itself.
        python: the Python of the runtime. Its installation is also searched for kernels.

    Raises:
        PlaceError: the kernel does not exist. The message names the kernels that exist.
    """
    if name is None:
        argv = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return KernelSpecification("python3", "python", argv, {}, "signal", python)
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
    from jupyter_core.paths import jupyter_path

    folder = str(Path(python).parent.parent / "share/jupyter/kernels")
    manager = KernelSpecManager(ensure_native_kernel=False, kernel_dirs=[folder, *jupyter_path("kernels")])
    try:
        spec = manager.get_kernel_spec(name)
    except NoSuchKernel:
        names = ", ".join(sorted(manager.find_kernel_specs())) or "none"
        raise PlaceError(
            Fault.NO_KERNEL, f"the kernel {name} does not exist; kernels of this machine: {names}"
        ) from None
    except (OSError, ValueError) as error:
        raise PlaceError(Fault.NO_KERNEL, f"the specification of the kernel {name} is damaged: {error}") from None
    return _specification(name, spec, python)


def _specification(name: str, spec: Any, python: str) -> KernelSpecification:
    """Convert a kernel of jupyter_client. The command `python` without a path is the Python of the runtime."""
    argv = list(spec.argv)
    if argv and _PYTHON_NAME.fullmatch(argv[0]):
        argv[0] = python
    is_python = spec.language.lower() == "python"
    program = shutil.which(argv[0]) if argv else None
    if program is None:
        raise PlaceError(Fault.NO_KERNEL, f"the program of the kernel {name} does not exist: {argv[0] if argv else ''}")
    return KernelSpecification(name, spec.language, argv, spec.env, spec.interrupt_mode, program if is_python else None)


@contextmanager
def started(
    specification: KernelSpecification,
    directory: Path,
    *,
    launcher: Sequence[str],
    variables: Mapping[str, str],
    private: Path,
) -> Iterator[LocalKernel]:
    """Start a kernel, wait until it answers, and end it with all its processes at the end of the context.

    Args:
        directory: the working directory of the kernel.
        launcher: the beginning of the command, which sets the limits.
        variables: the environment variables of the kernel.
        private: a directory with a short path, for the connection file and the sockets.

    Raises:
        PlaceError: the kernel does not start.
    """
    from jupyter_core.utils import run_sync

    stderr = PipeTail()
    kills = OomCounter(else_machine=True)
    manager = _manager(specification, launcher, private)
    with leftover_processes.killed():
        try:
            try:
                run_sync(_start)(manager, directory, variables, stderr.inlet)
            except (OSError, RuntimeError) as error:
                if pip_failures.is_disk_full([str(error)]):
                    raise
                raise _not_started(specification, str(error), stderr.text()) from None
            finally:
                stderr.close_inlet()
            yield LocalKernel(manager, manager.provisioner.process, stderr, kills)
        finally:
            _end(manager)


def _manager(specification: KernelSpecification, launcher: Sequence[str], private: Path) -> Any:
    """Return a kernel manager that knows only the kernel of a specification."""
    from jupyter_client.manager import AsyncKernelManager

    directory = private / "kernel"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(mode=0o700)
    options: dict[str, Any] = {}
    if specification.python is not None and len(os.fsencode(directory)) < _SOCKET_DIRECTORY:
        # The sockets are in a private directory, because other users of the machine could read the outputs on a TCP
        # port.
        options = {"transport": "ipc", "ip": str(directory / "s")}
    manager = AsyncKernelManager(
        kernel_name=specification.name,
        kernel_spec_manager=_specification_manager(specification, launcher),
        connection_file=str(directory / "connection.json"),
        **options,
    )
    manager.shutdown_wait_time = SHUTDOWN_SECONDS
    return manager


def _specification_manager(specification: KernelSpecification, launcher: Sequence[str]) -> Any:
    """Return the object that tells a kernel manager how to start the kernel."""
    from jupyter_client.kernelspec import KernelSpec, KernelSpecManager

    spec = KernelSpec(
        argv=[*launcher, *specification.argv],
        env=dict(specification.env),
        display_name=specification.name,
        language=specification.language,
        interrupt_mode=specification.interrupt_mode,
    )

    class OneKernel(KernelSpecManager):
        """Knows only the kernel of the specification."""

        def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
            """Return the kernel, by any name."""
            del kernel_name
            return spec

    return OneKernel()


async def _start(manager: Any, directory: Path, variables: Mapping[str, str], stderr: int) -> None:
    """Start the kernel and wait until it answers. Raise RuntimeError if the kernel does not answer."""
    null = os.open(os.devnull, os.O_RDWR)
    try:
        await manager.start_kernel(cwd=str(directory), env=dict(variables), stdin=null, stdout=null, stderr=stderr)
    finally:
        os.close(null)
    client = manager.client()
    client.start_channels()
    try:
        await client.wait_for_ready(timeout=START_TIMEOUT)
    finally:
        client.stop_channels()


def _not_started(specification: KernelSpecification, reason: str, stderr: str) -> PlaceError:
    if "No module named ipykernel" in stderr:
        return PlaceError(
            Fault.NO_KERNEL,
            f"{specification.argv[0]} has no ipykernel; install it there, name another `kernel`, or give the runtime "
            "`requirements`",
        )
    if _NO_MEMORY.search(stderr):
        return PlaceError(Fault.OUT_OF_MEMORY, "the kernel does not start, because its memory limit is too low")
    detail = last_line(stderr)
    return PlaceError(
        Fault.NO_KERNEL, f"the kernel {specification.name} does not start: {reason}" + (f": {detail}" if detail else "")
    )


async def _shut_down(manager: Any) -> None:
    await asyncio.wait_for(manager.shutdown_kernel(), 2 * SHUTDOWN_SECONDS)


def _end(manager: Any) -> None:
    """End a kernel and all processes of its group, within a few seconds."""
    from jupyter_core.utils import run_sync

    process = manager.provisioner.process if manager.provisioner is not None else None
    with suppress(Exception):  # a kernel that does not answer is killed below
        run_sync(_shut_down)(manager)
    if process is not None:
        process_tree.kill_group(process.pid)
        process.wait()
    with suppress(Exception):
        manager.cleanup_connection_file()
        manager.context.destroy(linger=0)


class LocalKernel:
    """A kernel that runs. Implements `RunningKernel`.

    Args:
        manager: the kernel manager.
        process: the process of the kernel, a `subprocess.Popen`.
        kills: counts the processes that the system has killed for lack of memory since the kernel started.
    """

    def __init__(self, manager: Any, process: Any, stderr: PipeTail, kills: OomCounter) -> None:
        self._manager = manager
        self._process = process
        self._stderr = stderr
        self._kills = kills

    @property
    def manager(self) -> Any:
        """The kernel manager."""
        return self._manager

    @property
    def pid(self) -> int:
        """The process ID of the kernel."""
        return int(self._process.pid)

    def ended(self) -> Ended | None:
        """Return how the kernel ended; None while it runs."""
        status = self._process.poll()
        if status is None:
            return None
        stderr = self._stderr.text()
        if status == -signal.SIGKILL and self._kills.count():
            message = "the system killed the kernel because memory was exhausted"
            return Ended(status, stderr=stderr, fault=Fault.OUT_OF_MEMORY, message=message)
        if status != 0 and _NO_MEMORY.search(stderr):
            message = f"the kernel ended because it exceeded its memory: {last_line(stderr)}"
            return Ended(status, stderr=stderr, fault=Fault.OUT_OF_MEMORY, message=message)
        return Ended(status, stderr=stderr, fault=Fault.KERNEL_DIED, message=f"the kernel ended {_how(status)}")

    def sampling(self, path: Path, seconds: float) -> AbstractContextManager[object]:
        """Write samples of the resource use of the kernel's processes while the context is active."""
        program = f"{use_sampler.program()}use_sampler.write({self.pid}, {str(path)!r}, {seconds})"
        return worker_processes.background([sys.executable, "-I", "-c", program])


def _how(status: int) -> str:
    return f"by the signal {exit_codes.signal_name(-status)}" if status < 0 else f"with status {status}"


class PipeTail:
    """A pipe that keeps the end of what was written to it. It collects the error messages of a program.

    Args:
        limit: how many bytes are kept.
    """

    def __init__(self, limit: int = _STDERR) -> None:
        self._outlet, self.inlet = os.pipe()
        self._limit = limit
        self._data = b""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def close_inlet(self) -> None:
        """Close the end of the pipe that belongs to this process."""
        os.close(self.inlet)

    def text(self) -> str:
        """Return the last output."""
        return self._data.decode("utf-8", "replace")

    def _read(self) -> None:
        with os.fdopen(self._outlet, "rb", buffering=0) as outlet:
            while data := outlet.read(self._limit):
                self._data = (self._data + data)[-self._limit :]
