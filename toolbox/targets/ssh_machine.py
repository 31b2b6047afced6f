"""Runs workloads on a machine that is reached by the user's OpenSSH.

All attempts share one connection per machine, for the agent and for the transfer of files (`ControlMaster`). The files
of an attempt stay below a directory of the machine until the attempt is released. The backend `ssh` uses one such
machine per target, and `host_group.py` uses several machines for one attempt.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import tarfile
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from toolbox.ground.model.errors import LimitExceeded, StepError
from toolbox.ground.model.text import truncate
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.ground.model.workloads import AttemptStatus, Handle, TargetContext, Workload
from toolbox.ground.system import cancellation, filesystem, processes, scratch
from toolbox.ground.system.processes import Channel
from toolbox.records.runs.layout import AttemptDirectory
from toolbox.targets import archives, bootstrap, staging
from toolbox.targets.host_attempts import HostAttempt, HostAttempts

log = logging.getLogger(__name__)

_TIMEOUT: Final = 60.0  # the timeout in seconds of all requests, except those that start or find a workload
_PAUSE: Final = 0.5
_LONGEST_LINE: Final = 1 << 16
_MAX_ERROR_LINES: Final = 1000  # the number of last lines of standard error to keep
ARCHIVE_MARKER: Final = "-- topgallant: archive --"
"""The line that a machine prints before an archive: see `skip_login_output`."""
_SSH_FAILED: Final = 255  # the exit status of ssh if the connection fails
_OPTIONS: Final = (
    "BatchMode=yes",  # never ask for a password
    "ConnectTimeout=15",
    # End the connection if the host has not answered for 15 s.
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
    "ControlPersist=no",
    # The user may have these options in the SSH configuration for logins by hand.
    "RemoteCommand=none",
    "RequestTTY=no",
)
# Executes the commands in its argument. `printf` decodes them, so that a login shell of any kind reads one line.
_ANY_SHELL: Final = """/bin/sh -c 'eval "$(printf %b "$1")"' sh"""
# Each login shell reads the other characters between single quotes unchanged. In csh, `!` and line breaks are special
# even there, and in fish, backslashes are.
_ENCODED: Final = re.compile(rb"[^ -~]|['!\\]")


@dataclass(frozen=True, slots=True)
class Login:
    """How OpenSSH reaches a machine.

    Args:
        host: the name or address of the machine, or its alias in the user's SSH configuration.
        user: the user to log in as; None for the user in the SSH configuration.
        port: the port of the SSH server; None for the port in the SSH configuration.
        options: more options of OpenSSH, as `NAME=VALUE`. They take precedence over the SSH configuration.
    """

    host: str
    user: str | None = None
    port: int | None = None
    options: tuple[str, ...] = ()

    def command(self, *options: str, command: str) -> Sequence[str]:
        """Return the command line that runs a command of `sh` on the machine, whatever the user's login shell is.

        Args:
            options: options of OpenSSH for this command line only, as `NAME=VALUE`.
        """
        flags = [f"-o{option}" for option in (*_OPTIONS, *options, *self.options)]
        user = ["-l", self.user] if self.user else []
        port = ["-p", str(self.port)] if self.port else []
        return ["ssh", *flags, *user, *port, "--", self.host, in_any_shell(command)]


@dataclass(slots=True)
class SshMachine:
    """Executes workloads on one machine. It implements `toolbox.ground.extensions.protocols.Backend`.

    Args:
        context: the target of the attempts. Its name is the name of the machine in messages.
        python: the Python interpreter for the agent.
        directory: the directory for attempts on the machine, as an absolute path or below `~/`.
    """

    context: TargetContext
    login: Login
    python: str
    directory: str
    _stack: ExitStack = field(default_factory=ExitStack)
    _control: Path = field(init=False)
    _host: HostAttempts = field(init=False)

    def __post_init__(self) -> None:
        self._control = self._stack.enter_context(scratch.directory()) / "control"
        self._host = HostAttempts(self.context.name, self._launch, self.context.notify)

    def submit(self, workload: Workload, name: str, directory: Path) -> Handle:
        """See `Backend`."""
        attempt = self._attempt(workload, name, directory)
        is_unused = self._host.is_unused(attempt.remote, attempt.timeout)
        sources = self._send(workload, directory, attempt.remote) if is_unused else None
        self._host.start(attempt, staging.order(workload, self.context, {}), sources=sources)
        return attempt.handle

    def poll(self, handles: Iterable[Handle]) -> Mapping[Handle, AttemptStatus]:
        """See `Backend`."""
        return {handle: self._host.book[self._directory(handle.name, 0)].status for handle in handles}

    def collect(self, handle: Handle, workload: Workload) -> None:
        """See `Backend`."""
        remote = self._directory(handle.name, _TIMEOUT)
        most = self.context.limits.files + 1  # with one file more than allowed, `archives.extract` detects the excess
        answer = self._host.connection.request(
            "list", _TIMEOUT, directory=remote, patterns=list(workload.collect), most=most
        )
        # Fetch a log again if the local copy is missing or incomplete, for example because the disk was full.
        logs = {AttemptDirectory(handle.directory).log(stream): size for stream, size in answer["logs"].items()}
        incomplete = [log.name for log, size in logs.items() if _size(log) != size]
        self._fetch([*answer["files"], *incomplete], remote, handle.directory)

    def cancel(self, handle: Handle) -> None:
        """See `Backend`."""
        self._host.connection.request("cancel", _TIMEOUT, directory=self._directory(handle.name, _TIMEOUT))

    def release(self, handle: Handle) -> None:
        """See `Backend`."""
        remote = self._directory(handle.name, _TIMEOUT)
        self._host.connection.request("release", _TIMEOUT, directory=remote)
        self._host.book.forget(remote)

    def find(self, workload: Workload, name: str, directory: Path) -> Handle | None:
        """See `Backend`."""
        attempt = self._attempt(workload, name, directory)
        return attempt.handle if self._host.watch(attempt) else None

    def close(self) -> None:
        """See `Backend`."""
        self._host.close()
        self._stack.close()

    def _attempt(self, workload: Workload, name: str, directory: Path) -> HostAttempt:
        timeout = workload.timeouts.wait
        handle, remote = Handle(name, directory), self._directory(name, timeout)
        return HostAttempt(handle, remote, copies_logs=True, timeout=timeout, log_bytes=workload.log_bytes)

    def _directory(self, name: str, timeout: float) -> str:
        """Return the absolute path of an attempt's directory on the machine."""
        parent = self.directory
        home = self._host.connection.home(timeout) if parent.startswith("~") else ""
        return f"{home}{parent.removeprefix('~')}/{name}"

    def _launch(self) -> Channel:
        command = f"exec {shlex.join(bootstrap.command(self.python))}"
        # This master connection ends with the orchestrator. The connections for files share the master connection, and
        # end with it.
        self._control.unlink(missing_ok=True)
        args = self._ssh("yes", command)
        return Channel(args, processes.environment(self.context.mark))

    def _ssh(self, master: str, command: str) -> Sequence[str]:
        return self.login.command(f"ControlMaster={master}", f"ControlPath={self._control}", command=command)

    def _send(self, workload: Workload, directory: Path, remote: str) -> str | None:
        """Send the files of a workload, and return their folder on the machine; None if there are no files.

        A copy of the files is kept in the directory of the attempt.
        """
        with staging.staged(workload, directory) as folder, scratch.directory() as private:
            if folder is None:
                return None
            archive = private / "sources.tar"
            with tarfile.open(archive, "w") as content:
                content.add(folder, arcname=".")
            remote_folder = f"{remote}/{folder.name}"
            quoted = shlex.quote(remote_folder)
            # `tar -C` would read a backslash in the name as an escape.
            self._run(f"umask 077 && mkdir -p {quoted} && cd {quoted} && tar -xof -", source=archive)
            with suppress(OSError):  # another process has already created `src/`
                folder.replace(AttemptDirectory(directory).sources)
            return remote_folder

    def _fetch(self, names: Sequence[str], remote: str, directory: Path) -> None:
        """Fetch files from a remote directory. Skip files that cannot be read or are unsafe to extract."""
        archive = AttemptDirectory(directory).archive
        tar = "tar --format=gnu --ignore-failed-read --hard-dereference --null -T - -cf -"
        with scratch.directory() as private:
            paths = filesystem.write_bytes(private / "paths", b"\0".join(os.fsencode(f"./{name}") for name in names))
            try:
                command = f"printf '\\n{ARCHIVE_MARKER}\\n'; cd {shlex.quote(remote)} && {tar}"
                for line in self._run(command, source=paths, output=archive):
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
            skip_login_output(stream)
            archives.extract(stream, directory, self.context.limits)

    def _run(self, command: str, *, source: Path | None = None, output: Path | None = None) -> list[str]:
        """Run a shell command on the machine, with files as its input and output. Retry if the connection drops.

        Returns:
            The last lines of the standard error of the command.

        Raises:
            StepError: the command failed, or the machine was unreachable.
        """
        deadline = time.monotonic() + _TIMEOUT
        while True:
            status, errors = self._run_once(command, source, output)
            if status == 0:
                return errors
            if status != _SSH_FAILED or time.monotonic() > deadline:
                raise self._failure("\n".join(map(truncate, errors[-3:])) or f"`{command}` ended with status {status}")
            # The connection has dropped. This request returns when the connection is restored.
            cancellation.current().sleep(_PAUSE)
            self._host.connection.request("state", deadline - time.monotonic(), directory="/")

    def _run_once(self, command: str, source: Path | None, output: Path | None) -> tuple[int, list[str]]:
        errors: deque[str] = deque(maxlen=_MAX_ERROR_LINES)
        with ExitStack() as stack:
            reader = stack.enter_context(source.open("rb")) if source else None
            writer = stack.enter_context(open(output, "wb", opener=filesystem.private_opener)) if output else None
            most = self.context.limits.archive_bytes
            pipe = stack.enter_context(archives.pipe_to(writer, most)) if writer else None
            completed = processes.run(
                self._ssh("no", command),
                env=processes.environment(self.context.mark),
                stdin=reader,
                stdout=pipe,
                on_line=errors.append,
            )
        return completed.returncode, list(errors)

    def _failure(self, message: str) -> StepError:
        return StepError(f"{self.context.name}: {message}", verdict=Verdict.ERROR, cause=Cause.INFRASTRUCTURE)


def in_any_shell(command: str) -> str:
    """Return one line with which each login shell executes commands of `sh`: bash, zsh, ksh, fish, csh and others."""
    encoded = _ENCODED.sub(lambda match: b"\\%04o" % ord(match[0]), os.fsencode(command))
    return f"{_ANY_SHELL} '{encoded.decode('ascii')}'"


def skip_login_output(stream: BinaryIO) -> None:
    """Skip the output of the login shell, which precedes the archive."""
    while (line := stream.readline(_LONGEST_LINE)) and line != f"{ARCHIVE_MARKER}\n".encode():
        continue


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else -1
