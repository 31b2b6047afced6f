"""Runs a command on workers by SSH, and keeps the output and the exit status of each worker.

The exit status 255 of `ssh` means that the connection failed, or that the command itself ended with 255. Therefore the
worker prints the status of the command after its output, on a line that begins with a random word. The worker gets this
word by standard input. If an argument contained the word, the command could read it and print a false status.
"""

from __future__ import annotations

import os
import secrets
import shlex
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final, Self

from toolbox.features.tpu import worker_threads
from toolbox.features.tpu.workers import Worker
from toolbox.ground.model.errors import StepError
from toolbox.ground.model.foreign_text import clean
from toolbox.ground.model.text import counted, truncate
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.ground.system import filesystem, processes
from toolbox.records.runs.layout import AttemptDirectory
from toolbox.targets.ssh_machine import Login

MAX_LOG_BYTES: Final = 1 << 28
"""The largest log that is kept for each stream of a worker."""
_FULL: Final = "-- the log is full: the rest is dropped --\n"
# The command runs in a session of its own. When the connection ends, `cat` reaches the end of its input, and the
# command is ended with all processes of its session.
_SCRIPT: Final = """\
IFS= read -r mark
exec 3<&0
setsid bash -c "$1" </dev/null 3<&- &
command=$!
{ cat <&3; kill -TERM -- "-$command"; sleep 5; kill -KILL -- "-$command"; } >/dev/null 2>&1 &
wait "$command"
status=$?
kill "$!" 2>/dev/null
printf '\\n%s %d\\n' "$mark" "$status"
"""


@dataclass(frozen=True, slots=True)
class WorkerResult:
    """How a command ended on a worker.

    Args:
        status: the exit status of the command; None if the connection failed before it was known.
        message: why the status is not known.
    """

    worker: Worker
    status: int | None
    message: str = ""


def raise_failures(results: Sequence[WorkerResult]) -> None:
    """Raise an error if a command did not end with status 0 on each worker.

    Raises:
        StepError: the command or a connection failed.
    """
    lost = [result for result in results if result.status is None]
    failed = [result for result in results if result.status]
    if not lost and not failed:
        return
    texts = [f"{result.worker.name}: {result.message}" for result in lost[:3]]
    if failed:
        numbers = ", ".join(f"{result.worker.index}: {result.status}" for result in failed[:20])
        texts.append(f"the command failed on {counted(len(failed), 'worker')} (worker: status): {numbers}")
    if lost:
        raise StepError("\n".join(texts), cause=Cause.INFRASTRUCTURE)
    raise StepError("\n".join(texts), verdict=Verdict.FAILED, cause=Cause.PRODUCT)


def shell_text(words: Sequence[str]) -> str:
    """Return the bash command line for words: one word is a command line itself, several words are a program."""
    return words[0] if len(words) == 1 else shlex.join(words)


def run(
    command: str,
    workers: Sequence[tuple[Worker, Login]],
    directory: Path,
    *,
    show: Callable[[Worker, str], None],
) -> list[WorkerResult]:
    """Run a bash command line on workers in parallel, and return the results in the order of the workers.

    The output of each worker is in `worker-N/stdout.log` and `worker-N/stderr.log` below the directory, and the exit
    status in `worker-N/exit_code`.

    Args:
        directory: the directory of the step.
        show: called with each line of output, from several threads.
    """
    return worker_threads.for_each(lambda each: _Execution(command, *each, directory, show).run(), workers)


def worker_directory(directory: Path, worker: Worker) -> Path:
    """Return the directory for the files of a worker."""
    return directory / f"worker-{worker.index}"


@dataclass(slots=True)
class _Execution:
    """The command on one worker."""

    command: str
    worker: Worker
    login: Login
    directory: Path
    show: Callable[[Worker, str], None]
    _mark: str = field(default_factory=lambda: f"topgallant-{secrets.token_hex(16)}")
    _status: int | None = None
    _has_held_line: bool = False

    def run(self) -> WorkerResult:
        files = AttemptDirectory(filesystem.make_directory(worker_directory(self.directory, self.worker)))
        files.exit_code.unlink(missing_ok=True)
        remote = shlex.join(["bash", "-c", _SCRIPT, "topgallant", self.command])
        errors: list[str] = []
        with ExitStack() as stack:
            stdout = stack.enter_context(_Log.opened(files.stdout))
            stderr = stack.enter_context(_Log.opened(files.stderr))
            reader = stack.enter_context(_open_input(f"{self._mark}\n"))

            def on_error_line(line: str) -> None:
                errors[:] = [*errors[-2:], line]
                stderr.write(line)
                self.show(self.worker, line)

            completed = processes.run(
                self.login.command(command=remote),
                env=processes.environment(self.directory),
                stdin=reader,
                on_line=lambda line: self._receive(line, stdout),
                on_error_line=on_error_line,
            )
        if self._status is None:
            reason = " ".join(truncate(clean(line)) for line in errors) or f"ssh ended with {completed.returncode}"
            return WorkerResult(self.worker, None, f"the connection failed: {reason}")
        filesystem.write_text(files.exit_code, f"{self._status}\n")
        return WorkerResult(self.worker, self._status)

    def _receive(self, line: str, log: _Log) -> None:
        """Write a line of output. The line break before the mark is not part of the output."""
        if line.startswith(f"{self._mark} "):
            self._status = int(line.removeprefix(f"{self._mark} "))
            return
        if self._has_held_line:
            self._write("", log)
        self._has_held_line = line == ""
        if line:
            self._write(line, log)

    def _write(self, line: str, log: _Log) -> None:
        log.write(line)
        self.show(self.worker, line)


class _Log:
    """A log with a limited size."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._left = MAX_LOG_BYTES
        self._lock = threading.Lock()

    @classmethod
    def opened(cls, path: Path) -> Self:
        """Create the log file, or empty it."""
        return cls(open(path, "wb", buffering=0, opener=filesystem.private_opener))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._file.close()

    def write(self, line: str) -> None:
        content = filesystem.encode(f"{line}\n")
        with self._lock:
            if self._left <= 0 or self._file.closed:
                return
            self._left -= len(content)
            self._file.write(content if self._left > 0 else _FULL.encode())


@contextmanager
def _open_input(text: str) -> Iterator[IO[bytes]]:
    """Yield an input for `ssh` that contains a short text, and then stays open and empty until the block ends."""
    reader, writer = os.pipe()
    try:
        os.write(writer, text.encode())
        with os.fdopen(reader, "rb") as stream:
            yield stream
    finally:
        os.close(writer)
