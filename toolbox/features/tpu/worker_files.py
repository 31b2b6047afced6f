"""Fetches files from workers by SSH and tar.

`toolbox/targets/archives.py` extracts the archives, as it does for attempts.
"""

from __future__ import annotations

import shlex
import tarfile
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolbox.features.tpu import worker_commands, worker_threads
from toolbox.features.tpu.workers import Worker
from toolbox.ground.model.errors import LimitExceeded, StepError
from toolbox.ground.model.foreign_text import clean
from toolbox.ground.model.text import abbreviated, truncate
from toolbox.ground.model.workloads import CollectLimits
from toolbox.ground.system import filesystem, processes
from toolbox.records.runs.layout import AttemptDirectory
from toolbox.targets import archives
from toolbox.targets.ssh_machine import ARCHIVE_MARKER, Login, skip_login_output

_MAX_ERRORS: Final = 100
_OPTIONS: Final = "--format=gnu --hard-dereference"


@dataclass(frozen=True, slots=True)
class FetchResult:
    """What was fetched from a worker.

    Args:
        directory: the directory with the files, below which a file has the path that it has on the worker.
        message: why files are missing; empty if nothing is missing.
    """

    worker: Worker
    directory: Path
    message: str = ""


def check_paths(paths: Sequence[str]) -> None:
    """Check the paths of files to fetch.

    Raises:
        ValueError: there is no path, or a path contains `..`.
    """
    if not paths:
        raise ValueError("name at least one file or directory to fetch")
    for path in paths:
        if ".." in path.split("/") or not path.strip("/.") or "\0" in path or "\n" in path:
            raise ValueError(
                f"{abbreviated(path)} cannot be fetched: write the path of a file or directory, without .."
            )


def fetch(
    paths: Sequence[str], workers: Sequence[tuple[Worker, Login]], directory: Path, limits: CollectLimits, *, mark: Path
) -> list[FetchResult]:
    """Fetch files and directories from workers in parallel, into `worker-N/files/` below a directory.

    Args:
        paths: absolute paths, or paths below the home of the SSH user.
        limits: the limits for the files of each worker.
        mark: the directory of the step, for the processes `ssh`.

    Raises:
        LimitExceeded: the files of a worker exceed the limits.
    """
    check_paths(paths)
    return worker_threads.for_each(lambda each: _Fetch(paths, *each, directory, limits, mark).run(), workers)


@dataclass(frozen=True, slots=True)
class _Fetch:
    """The transfer from one worker."""

    paths: Sequence[str]
    worker: Worker
    login: Login
    directory: Path
    limits: CollectLimits
    mark: Path

    def run(self) -> FetchResult:
        directory = filesystem.make_directory(worker_commands.worker_directory(self.directory, self.worker))
        archive = AttemptDirectory(directory).archive
        try:
            status, errors = self._receive(archive)
            with archive.open("rb") as stream:
                skip_login_output(stream)
                archives.extract(stream, directory, self.limits)
        except (OSError, tarfile.TarError) as error:
            raise StepError(f"the files of {self.worker.name} cannot be fetched: {error}") from error
        except LimitExceeded as error:
            raise LimitExceeded(f"{self.worker.name}: {error}") from error
        finally:
            archive.unlink(missing_ok=True)
        message = "; ".join(errors) or f"tar ended with status {status}" if status != 0 else ""
        return FetchResult(self.worker, directory / AttemptDirectory.results, message)

    def _receive(self, archive: Path) -> tuple[int, Sequence[str]]:
        errors: deque[str] = deque(maxlen=_MAX_ERRORS)
        with ExitStack() as stack:
            writer = stack.enter_context(open(archive, "wb", opener=filesystem.private_opener))
            pipe = stack.enter_context(archives.pipe_to(writer, self.limits.archive_bytes))
            completed = processes.run(
                self.login.command(command=_command(self.paths)),
                env=processes.environment(self.mark),
                stdout=pipe,
                on_line=errors.append,
            )
        return completed.returncode, [truncate(clean(line)) for line in list(errors)[-3:]]


def _command(paths: Sequence[str]) -> str:
    """Return the shell command that prints the archive. `./` before a path keeps it from being an option of tar."""
    below_home = [shlex.quote(f"./{path}") for path in paths if not path.startswith("/")]
    below_root = [shlex.quote(f"./{path.lstrip('/')}") for path in paths if path.startswith("/")]
    words = [*(['-C "$HOME"', *below_home] if below_home else []), *(["-C /", *below_root] if below_root else [])]
    prefix = f"--transform='s,^\\./,{AttemptDirectory.results}/,S'"
    return f"printf '\\n{ARCHIVE_MARKER}\\n'; tar {_OPTIONS} {prefix} -cf - {' '.join(words)}"
