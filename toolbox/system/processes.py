"""The only module that starts and ends processes (ansible-runner starts its own, and we end those too).

Every process carries the directory of its step in the environment variable `TOPGALLANT_STEP`. Its children
inherit it, also those that leave the process group or lose their parent, so that a step's processes can be found
and ended whole. Jenkins finds the processes of a build in the same way (its ProcessTreeKiller).
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import psutil

from toolbox.system import cancellation, environ

MARK: Final = "TOPGALLANT_STEP"
GRACE_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Completed:
    """A process that has ended.

    Args:
        returncode: its exit status; minus the number of the signal that ended it.
        stdout: what it printed, or None when that was not captured.
        stderr: likewise.
    """

    args: tuple[str, ...]
    returncode: int
    stdout: str | None
    stderr: str | None


def environment(step: Path, variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables of a process of a step: ours, those given, the step's directory, and its mark."""
    return {
        **environ.everything(),
        **(variables or {}),
        environ.ARTIFACT_DIR: str(step),
        MARK: str(step),
    }


def run(
    args: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    stdin: IO[bytes] | None = None,
    on_line: Callable[[str], None],
    capture_stdout: bool = False,
    capture_stderr: bool = False,
) -> Completed:
    """Run a program to its end, in a session of its own, and return how it ended.

    Whatever interrupts the waiting (a cancelled scope, a signal) ends the process with its children first.

    Args:
        env: its variables; `environment` makes them.
        on_line: takes each line of output that is not captured, from a thread of its own.

    Raises:
        Cancelled: the scope was cancelled before or while it ran.
        OSError: the program cannot be started.
    """
    scope = cancellation.current()
    scope.check()
    process = subprocess.Popen(  # a list of arguments; a shell only where a user wrote one
        list(args),
        env=dict(env),
        cwd=cwd,
        stdin=stdin or subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    mark = env[MARK]
    done = scope.add(lambda: end_tree(process.pid, mark))
    try:
        stdout = _Pump(process.stdout, None if capture_stdout else on_line)
        stderr = _Pump(process.stderr, None if capture_stderr else on_line)
        texts = stdout.text(), stderr.text()
        process.wait()
    except BaseException:
        end_tree(process.pid, mark)
        process.wait()
        raise
    finally:
        done()
    scope.check()
    return Completed(
        tuple(args),
        process.returncode,
        texts[0] if capture_stdout else None,
        texts[1] if capture_stderr else None,
    )


class _Pump:
    """Reads a stream to its end in a thread, so that a full pipe never stops the program."""

    def __init__(self, stream: IO[bytes] | None, on_line: Callable[[str], None] | None) -> None:
        self._lines: list[str] = []
        self._thread = threading.Thread(target=self._read, args=(stream, on_line), daemon=True)
        self._thread.start()

    def text(self) -> str:
        """Wait for the end of the stream, and return all of it where no one else took the lines."""
        self._thread.join()
        return "".join(self._lines)

    def _read(self, stream: IO[bytes] | None, on_line: Callable[[str], None] | None) -> None:
        assert stream is not None, "every process here is started with pipes"
        with stream:
            for content in stream:
                line = content.decode("utf-8", errors="replace")
                if on_line is None:
                    self._lines.append(line)
                else:
                    on_line(line.rstrip("\r\n"))


def end_tree(pid: int, mark: str, *, grace: float = GRACE_SECONDS) -> None:
    """End a process with all its descendants, and everything that carries the mark: SIGTERM, then SIGKILL."""
    _end(lambda: [*_descendants(pid), *_marked(mark)], grace)


def end_marked(directory: Path, *, grace: float = GRACE_SECONDS) -> int:
    """End every process of the steps at or below a directory, and return how many there were."""
    return _end(lambda: _marked(str(directory)), grace)


def marked(directory: Path) -> list[int]:
    """Return the ids of the processes of the steps at or below a directory."""
    return [process.pid for process in _marked(str(directory))]


def _end(find: Callable[[], list[psutil.Process]], grace: float) -> int:
    found = _distinct(find())
    for process in found:
        _signal(process, kill=False)
    _, alive = psutil.wait_procs(found, timeout=grace)
    # What was forked after the first look is found by the second.
    for process in _distinct([*alive, *find()]):
        _signal(process, kill=True)
        found.append(process)
    psutil.wait_procs(found, timeout=grace)
    return len(_distinct(found))


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _marked(mark: str) -> list[psutil.Process]:
    own = os.getpid()
    found = []
    for process in psutil.process_iter():
        try:
            value = process.environ().get(MARK)
        except (psutil.Error, OSError):
            continue
        is_ours = value is not None and (value == mark or value.startswith(f"{mark}/"))
        if is_ours and process.pid != own and process.status() != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


def _distinct(processes: Sequence[psutil.Process]) -> list[psutil.Process]:
    return list({process.pid: process for process in processes}.values())


def _signal(process: psutil.Process, *, kill: bool) -> None:
    try:
        if kill:
            process.kill()
        else:
            process.terminate()
    except psutil.NoSuchProcess:
        pass
