"""A machine that is reached with the user's own OpenSSH, configuration and known hosts.

One connection carries the agent of a host. All cells share it, and files go through it as well (`ControlMaster`). The
attempts are below `directory` on the host until they are released.
"""

from __future__ import annotations

import logging
import os
import shlex
import tarfile
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, BinaryIO, ClassVar, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from toolbox.extensions.protocols import Backend
from toolbox.hosts import archives, bootstrap, staging
from toolbox.hosts.attempt_host import Host
from toolbox.model import addresses
from toolbox.model.addresses import Address
from toolbox.model.errors import LimitExceeded, StepError
from toolbox.model.text import truncate
from toolbox.model.verdicts import Cause, Verdict
from toolbox.model.workloads import AttemptStatus, Handle, TargetContext, Workload
from toolbox.runs.layout import AttemptDirectory
from toolbox.system import cancellation, filesystem, processes, scratch
from toolbox.system.processes import Channel

log = logging.getLogger(__name__)

_TIMEOUT: Final = 60.0  # seconds to reach the host, if there is no workload with a timeout of its own
_PAUSE: Final = 0.5
_LONGEST_LINE: Final = 1 << 16
_MOST_COMPLAINTS: Final = 1000  # how many of the last lines of standard error to keep
_BEGINNING: Final = "-- topgallant: archive --"
_SSH_FAILED: Final = 255  # the exit status of ssh when ssh itself failed, not the command
_OPTIONS: Final = (
    "BatchMode=yes",  # there is no user to enter a password
    "ConnectTimeout=15",
    # A connection that drops silently is noticed within 15 s.
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
    "ControlPersist=no",
)


class Target(BaseModel):
    """The machine, and the paths to use there.

    Args:
        host: its name, its address, or its alias in `~/.ssh/config` (see `toolbox.model.addresses`); the name of the
            target when left out.
        user: the user to log in as; that of the SSH configuration when left out. `port`: likewise.
        python: the interpreter for the agent, 3.8 or later.
        directory: where to keep each attempt on the machine until its files are fetched: absolute, or below `~/`.
    """

    model_config = ConfigDict(extra="forbid")
    keeps_attempts: ClassVar[bool] = True

    host: Annotated[str, AfterValidator(addresses.host)] | None = None
    user: Annotated[str, AfterValidator(addresses.user)] | None = None
    port: int | None = Field(default=None, ge=1, le=65535)
    python: str = Field(default="python3", min_length=1)
    directory: str = Field(default="~/.cache/topgallant/attempts", pattern=r"^(/|~/|~$)")

    def open(self, context: TargetContext) -> Backend:
        """Return the backend of this machine."""
        return _Ssh(context, self)

    def address(self, name: str) -> str | None:
        """See `toolbox.extensions.protocols.Target`."""
        return str(Address(self.reached(name), self.user, self.port))

    def reached(self, name: str) -> str:
        """Return the name or address by which `ssh` reaches the target.

        Raises:
            ValueError: no host is configured, and the name of the target is not a host.
        """
        return self.host or addresses.host(name)


@dataclass(slots=True)
class _Ssh:
    """Executes workloads on one machine."""

    context: TargetContext
    target: Target
    _stack: ExitStack = field(default_factory=ExitStack)
    _control: Path = field(init=False)
    _host: Host = field(init=False)

    def __post_init__(self) -> None:
        self._control = self._stack.enter_context(scratch.directory()) / "control"
        self._host = Host(self.context.name, self._launch, self.context.notify)

    def submit(self, workload: Workload, name: str, directory: Path) -> Handle:
        """See `Backend`."""
        wait = workload.timeouts.wait
        there = self._directory(name, wait)
        sources = self._send(workload, directory, there) if self._host.is_new(there, wait) else None
        order = staging.order(workload, self.context, {})
        self._host.start(name, there, order, sources=sources, mirror=directory, wait=wait)
        return Handle(name, directory)

    def poll(self, handles: Iterable[Handle]) -> Mapping[Handle, AttemptStatus]:
        """See `Backend`."""
        return {handle: self._host.status(self._directory(handle.name, 0)) for handle in handles}

    def collect(self, handle: Handle, workload: Workload) -> None:
        """See `Backend`."""
        there = self._directory(handle.name, _TIMEOUT)
        most = self.context.limits.files + 1  # one more than allowed, to detect that there are more
        answer = self._host.ask("list", _TIMEOUT, directory=there, patterns=list(workload.collect), most=most)
        # Fetch a whole log if the local copy is empty, or was cut off by a full disk.
        logs = {AttemptDirectory(handle.directory).log(stream): size for stream, size in answer["logs"].items()}
        incomplete = [log.name for log, size in logs.items() if _size(log) != size]
        self._fetch([*answer["files"], *incomplete], there, handle.directory)

    def cancel(self, handle: Handle) -> None:
        """See `Backend`."""
        self._host.ask("cancel", _TIMEOUT, directory=self._directory(handle.name, _TIMEOUT))

    def release(self, handle: Handle) -> None:
        """See `Backend`."""
        there = self._directory(handle.name, _TIMEOUT)
        self._host.ask("release", _TIMEOUT, directory=there)
        self._host.forget(there)

    def find(self, workload: Workload, name: str, directory: Path) -> Handle | None:
        """See `Backend`."""
        wait = workload.timeouts.wait
        found = self._host.watch(name, self._directory(name, wait), mirror=directory, wait=wait)
        return Handle(name, directory) if found else None

    def close(self) -> None:
        """See `Backend`."""
        self._host.close()
        self._stack.close()

    def _directory(self, name: str, timeout: float) -> str:
        """Return the absolute path of an attempt's directory on the machine."""
        place = self.target.directory
        home = self._host.home(timeout) if place.startswith("~") else ""
        return f"{home}{place.removeprefix('~')}/{name}"

    def _launch(self) -> Channel:
        command = shlex.join(bootstrap.command(self.target.python))
        # This is the master connection: it ends with the orchestrator, and all other connections end with it.
        self._control.unlink(missing_ok=True)
        args = self._ssh("ControlMaster=yes", command)
        return Channel(args, processes.environment(self.context.mark))

    def _ssh(self, master: str, command: str) -> Sequence[str]:
        options = [f"-o{option}" for option in (*_OPTIONS, master, f"ControlPath={self._control}")]
        user = ["-l", self.target.user] if self.target.user else []
        port = ["-p", str(self.target.port)] if self.target.port else []
        return ["ssh", "-T", *options, *user, *port, "--", self.target.reached(self.context.name), command]

    def _send(self, workload: Workload, directory: Path, there: str) -> str | None:
        """Send the files of a workload, keep a copy, and return the remote folder; None if there are no files."""
        with staging.staged(workload, directory) as folder, scratch.directory() as private:
            if folder is None:
                return None
            archive = private / "sources.tar"
            with tarfile.open(archive, "w") as content:
                content.add(folder, arcname=".")
            sent = f"{there}/{folder.name}"
            quoted = shlex.quote(sent)
            self._run(f"umask 077 && mkdir -p {quoted} && tar -xof - -C {quoted}", source=archive)
            with suppress(OSError):  # another process has created it meanwhile
                folder.replace(AttemptDirectory(directory).sources)
            return sent

    def _fetch(self, names: Sequence[str], there: str, directory: Path) -> None:
        """Fetch files from a remote folder. Files that cannot be read, or are unsafe to extract, are left out."""
        archive = AttemptDirectory(directory).archive
        tar = f"tar -C {shlex.quote(there)} --format=gnu --ignore-failed-read --hard-dereference --null -T - -cf -"
        with scratch.directory() as private:
            wanted = filesystem.write_bytes(private / "wanted", b"\0".join(os.fsencode(f"./{name}") for name in names))
            try:
                for line in self._run(f"printf '\\n{_BEGINNING}\\n'; {tar}", source=wanted, output=archive):
                    if line.startswith("tar:"):
                        log.warning("%s: %s", self.context.name, line)
                self._extract(archive, directory)
            except LimitExceeded:
                with suppress(LimitExceeded, tarfile.TarError):  # keep the files that have arrived
                    self._extract(archive, directory)
                raise
            except (OSError, tarfile.TarError) as error:
                raise self._failure(f"the files of the attempt cannot be fetched: {error}") from error
            finally:
                archive.unlink(missing_ok=True)

    def _extract(self, archive: Path, directory: Path) -> None:
        with archive.open("rb") as stream:
            archives.extract(_after_the_greeting(stream), directory, self.context.limits)

    def _run(self, command: str, *, source: Path | None = None, output: Path | None = None) -> list[str]:
        """Run a shell command on the machine, with files as its input and output. The command may run twice.

        Returns:
            the last lines that it wrote to standard error.

        Raises:
            StepError: the command failed (the message has its last errors), or the machine was unreachable.
        """
        deadline = time.monotonic() + _TIMEOUT
        while True:
            status, errors = self._run_once(command, source, output)
            if status == 0:
                return errors
            if status != _SSH_FAILED or time.monotonic() > deadline:
                raise self._failure("\n".join(map(truncate, errors[-3:])) or f"`{command}` ended with status {status}")
            # The connection has dropped. The agent answers once it is restored.
            cancellation.current().sleep(_PAUSE)
            self._host.ask("state", deadline - time.monotonic(), directory="/")

    def _run_once(self, command: str, source: Path | None, output: Path | None) -> tuple[int, list[str]]:
        errors: deque[str] = deque(maxlen=_MOST_COMPLAINTS)
        with ExitStack() as stack:
            reader = stack.enter_context(source.open("rb")) if source else None
            writer = stack.enter_context(open(output, "wb", opener=filesystem.private_opener)) if output else None
            most = self.context.limits.archive_bytes
            pipe = stack.enter_context(archives.copied(writer, most)) if writer else None
            done = processes.run(
                self._ssh("ControlMaster=no", command),
                env=processes.environment(self.context.mark),
                stdin=reader,
                stdout=pipe,
                on_line=errors.append,
            )
        return done.returncode, list(errors)

    def _failure(self, message: str) -> StepError:
        return StepError(f"{self.context.name}: {message}", verdict=Verdict.ERROR, cause=Cause.INFRASTRUCTURE)


def _after_the_greeting(stream: BinaryIO) -> BinaryIO:
    """Skip the output of the login shell, which precedes the archive."""
    while (line := stream.readline(_LONGEST_LINE)) and line != f"{_BEGINNING}\n".encode():
        continue
    return stream


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else -1
