"""The only module of the orchestrator that starts and ends processes. On targets, `toolbox.targets.agent` does this.

Every process is started with the environment variable `TOPGALLANT_STEP`, which names the directory of its step. Its
children inherit the variable, even if they leave the process group or their parent ends. So all processes of a step can
be found and ended. Jenkins finds the processes of a build in the same way (`ProcessTreeKiller`).
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import secrets
import select
import signal
import subprocess
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final, Protocol

import psutil

from toolbox.ground.kit.process_tree import MARK
from toolbox.ground.system import cancellation, environ, signals

STRICT_BASH: Final = ("bash", "-o", "errexit", "-o", "nounset", "-o", "pipefail", "-c")
"""The first arguments of a command line whose last argument is the text of a bash script."""
GRACE_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.02
_DRAIN_SECONDS: Final = 2.0
_LONGEST_ERROR: Final = 1 << 12  # bytes; longer lines of the standard error of a `Channel` are split
_LONGEST_TEXT: Final = 1 << 20  # bytes; longer lines of the output of `run` are split
Completed = subprocess.CompletedProcess[str | None]
"""A process that has ended. Its `stdout` and `stderr` are None if they were not captured."""
TimeoutExpired = subprocess.TimeoutExpired
Server = subprocess.Popen[bytes]
"""A program that `start_server` has started."""


class Process(Protocol):
    """A process that has been started: a `subprocess.Popen`, or a fork of a server."""

    pid: int
    returncode: int | Any

    @property
    def stdout(self) -> IO[bytes] | None:
        """The read end of the pipe with the standard output."""
        ...

    @property
    def stderr(self) -> IO[bytes] | None:
        """The read end of the pipe with the standard error."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process, and return its exit status. Raise `TimeoutExpired` if the time is over."""
        ...


def environment(step: Path, variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment variables for a process of a step.

    They are the variables of this process, `variables`, and two variables with the directory of the step. The URL of
    the results database is removed, because it may contain a password, and child processes don't need it.
    """
    inherited = environ.everything()
    inherited.pop(environ.RESULTS_DATABASE, None)
    return {
        **inherited,
        **(variables or {}),
        environ.ARTIFACT_DIR: str(step),
        MARK: str(step),
    }


def apart(directory: Path) -> Path:
    """Return a name below a directory for one process that belongs to no step: pass it to `environment`.

    When `run` ends a process, it ends all processes of the same step and below. With this name, it ends no others.
    """
    return directory / f"process-{secrets.token_hex(8)}"


def run(
    args: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    stdin: IO[bytes] | None = None,
    stdout: IO[bytes] | None = None,
    on_line: Callable[[str], None],
    on_error_line: Callable[[str], None] | None = None,
    whole_lines: bool = True,
    capture_stdout: bool = False,
    capture_stderr: bool = False,
    start: Callable[[], Process | None] = lambda: None,
) -> Completed:
    """Run a program to its end in a new session, and return its result.

    If the current scope is cancelled or a signal arrives, end the process and its children, and raise the exception.

    Args:
        env: the environment variables, as `environment` returns them.
        stdout: a file for the standard output; None to capture it or to pass it to `on_line`.
        on_line: called with each line of standard output, in another thread.
        on_error_line: called with each line of standard error, in another thread; None to call `on_line`.
        whole_lines: False to call the functions with pieces of text as soon as they are printed, line ends included.
        start: starts the program in another way than `subprocess`; its result is None if this way is not available.

    Raises:
        Cancelled: the current scope was cancelled before or during the run.
        OSError: the program cannot be started.
    """
    scope = cancellation.current()
    scope.check()
    mark = env[MARK]
    with signals.deferred():
        process: Process = start() or subprocess.Popen(  # a list of arguments; a shell only if the user wrote for one
            list(args),
            env=dict(env),
            cwd=cwd,
            stdin=stdin or subprocess.DEVNULL,
            stdout=stdout or subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

        def end() -> None:
            end_tree(process.pid, mark)

        unregister = scope.add(end)
        on_error = None if capture_stderr else on_error_line or on_line
        pumps = [
            _Pump(stream, on_text, end, whole_lines=whole_lines)
            for stream, on_text in ((process.stdout, None if capture_stdout else on_line), (process.stderr, on_error))
        ]
    try:
        signals.check()
        _await(process)
        texts = [pump.text() for pump in pumps]
    except BaseException:
        end()
        process.wait()
        raise
    finally:
        unregister()
    if process.returncode == -signal.SIGKILL:
        end()  # the process could not end its children
    if scope.reason is not None:
        end()  # the process has ended, but the cancelling thread may still be ending its children
        scope.check()
    return Completed(
        tuple(args),
        process.returncode,
        texts[0] if capture_stdout else None,
        texts[1] if capture_stderr else None,
    )


class LineTooLong(Exception):
    """The program printed a line that is longer than allowed."""


_end_with_input: Final[weakref.WeakSet[subprocess.Popen[bytes]]] = weakref.WeakSet()
"""The programs that end when their standard input is closed."""


def _close_inputs() -> None:
    """Close the copies of a fork, for example of `multiprocessing`: it may live longer than this process."""
    for process in list(_end_with_input):
        assert process.stdin is not None, "the program is started with a pipe"
        process.stdin.close()


os.register_at_fork(after_in_child=_close_inputs)


class Channel:
    """A running program, and pipes to its standard input and output.

    Args:
        env: the environment variables, as `environment` returns them.
    """

    _KEPT_ERRORS: Final = 20

    def __init__(self, args: Sequence[str], env: Mapping[str, str]) -> None:
        with signals.deferred():
            self._process = subprocess.Popen(
                list(args),
                env=dict(env),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                bufsize=0,
            )
            _end_with_input.add(self._process)
        self._lock = threading.Lock()
        self._errors: deque[str] = deque(maxlen=self._KEPT_ERRORS)
        self._error_reader = threading.Thread(target=self._read_errors, daemon=True)
        self._error_reader.start()

    @property
    def errors(self) -> str:
        """The last lines of the standard error. The property waits up to 2 s for the program to close the stream."""
        self._error_reader.join(_DRAIN_SECONDS)
        return "\n".join(self._errors)

    def write(self, content: bytes) -> None:
        """Write all of the content to the standard input of the program. May be called from any thread.

        Raises:
            OSError: the program has ended.
        """
        assert self._process.stdin is not None, "the program is started with pipes"
        view = memoryview(content)
        with self._lock:
            if self._process.stdin.closed:
                raise BrokenPipeError(errno.EPIPE, "the channel was closed")
            while view:
                view = view[self._process.stdin.write(view) or 0 :]

    def lines(self, longest: int) -> Iterator[bytes]:
        """Yield the lines that the program prints, until it ends.

        Raises:
            LineTooLong: a line has more than `longest` bytes.
        """
        assert self._process.stdout is not None, "the program is started with pipes"
        with io.BufferedReader(self._process.stdout, 1 << 16) as stream:  # type: ignore[type-var]  # a raw stream
            while line := stream.readline(longest + 1):
                if len(line) > longest:
                    raise LineTooLong(f"a line has more than {longest} bytes")
                yield line

    def close(self) -> int:
        """Close the input of the program, kill the program if it does not end in time, and return its exit status."""
        with self._lock, suppress(OSError):
            assert self._process.stdin is not None, "the program is started with pipes"
            self._process.stdin.close()
        try:
            return self._process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def _read_errors(self) -> None:
        assert self._process.stderr is not None, "the program is started with pipes"
        with self._process.stderr as stream:
            while line := stream.readline(_LONGEST_ERROR):
                self._errors.append(line.decode("utf-8", "replace").rstrip())


def start_server(args: Sequence[str], env: Mapping[str, str], cwd: Path, errors: IO[bytes], *, keep: int) -> Server:
    """Start a program that serves this process until `stop_server` is called, or until this process ends in any way.

    The program must end when its standard input is closed. Forks of this process close their copies of it.

    Args:
        errors: the file for the standard output and the standard error.
        keep: a descriptor that the program inherits.
    """
    with signals.deferred():
        server = subprocess.Popen(
            list(args),
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=errors,
            stderr=errors,
            pass_fds=[keep],
            start_new_session=True,
        )
        _end_with_input.add(server)
        return server


def start_connected(
    args: Sequence[str | bytes], env: Mapping[str, str], streams: Sequence[int], *, keep: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """Start a program that may outlive this process, in a new session.

    Args:
        streams: descriptors for the standard input, the standard output and the standard error.
        keep: descriptors that the program inherits.
    """
    stdin, stdout, stderr = streams
    with signals.deferred():
        return subprocess.Popen(
            list(args),
            env=dict(env),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=keep,
            start_new_session=True,
        )


def stop_server(process: Server) -> None:
    """Close the standard input of a server, and wait for its end; kill the server if it does not end in time."""
    assert process.stdin is not None, "the server is started with a pipe"
    with signals.deferred():
        process.stdin.close()
        try:
            process.wait(2 * GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await(process: Process) -> None:
    """Wait for the end of a process.

    The main thread runs the signal handlers, and therefore waits in short intervals. It does not call `Popen.wait` with
    a timeout: a signal handler that raises in there could leave the lock of `Popen` held.
    """
    if threading.current_thread() is threading.main_thread():
        with _exit_of(process) as exited:
            while not exited():
                continue
    with signals.deferred():
        process.wait()
    signals.check()


@contextmanager
def _exit_of(process: Process) -> Iterator[Callable[[], bool]]:
    """Yield a function that waits up to `signals.WAIT_SECONDS`, and returns whether the process has ended."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # the system has no pidfd, or the exit status was already read
        yield lambda: _has_ended(process)
        return
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        yield lambda: bool(poll.poll(signals.WAIT_SECONDS * 1000))
    finally:
        os.close(descriptor)


def _has_ended(process: Process) -> bool:
    with signals.deferred(), suppress(subprocess.TimeoutExpired):
        process.wait(signals.WAIT_SECONDS)
    signals.check()
    return process.returncode is not None


class _Pump:
    """Reads a stream to its end in a thread, so that a full pipe never blocks the program."""

    def __init__(
        self,
        stream: IO[bytes] | None,
        on_text: Callable[[str], None] | None,
        on_error: Callable[[], None],
        *,
        whole_lines: bool,
    ) -> None:
        self._on_error = on_error
        self._whole_lines = whole_lines
        self._lines: list[str] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._read, args=(stream, on_text), daemon=True)
        self._thread.start()

    def text(self) -> str:
        """Return the captured text after the program has ended, or raise the exception of the callback.

        The wait is limited, because background processes of the program may keep the stream open.
        """
        self._thread.join(_DRAIN_SECONDS)
        if self._error is not None:
            raise self._error
        return "".join(self._lines)

    def _read(self, stream: IO[bytes] | None, on_text: Callable[[str], None] | None) -> None:
        if stream is None:  # the output goes to a file
            return
        try:
            with stream:
                for text in _lines(stream) if self._whole_lines or on_text is None else _pieces(stream):
                    if on_text is None:
                        self._lines.append(text)
                    else:
                        on_text(text.rstrip("\r\n") if self._whole_lines else text)
        except BaseException as error:  # noqa: BLE001  # `text` raises the error in the thread that waits
            self._error = error
            self._on_error()


def _lines(stream: IO[bytes]) -> Iterator[str]:
    """Yield the lines of a stream. A line of more than `_LONGEST_TEXT` bytes is split between characters."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    while content := stream.readline(_LONGEST_TEXT):
        if text := decoder.decode(content, final=content.endswith(b"\n")):
            yield text
    if text := decoder.decode(b"", final=True):
        yield text


def _pieces(stream: IO[bytes]) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    while content := os.read(stream.fileno(), 1 << 16):
        yield decoder.decode(content)
    yield decoder.decode(b"", final=True)


def end_tree(pid: int, mark: str, *, grace: float = GRACE_SECONDS) -> None:
    """End a process, its descendants, and the processes of the step `mark`: first with SIGTERM, then with SIGKILL."""
    _end(lambda: [*_descendants(pid), *_marked(mark)], grace)


def end_marked(directory: Path, *, grace: float = GRACE_SECONDS, keep: Sequence[Path] = ()) -> int:
    """End every process of the steps at or below a directory, and return how many there were.

    Args:
        keep: directories below `directory` whose processes are not ended.
    """
    excluded = tuple(str(path) for path in keep)
    return _end(lambda: _marked(str(directory), excluded), grace)


def marked(directory: Path) -> list[int]:
    """Return the ids of the processes of the steps at or below a directory."""
    return [process.pid for process in _marked(str(directory))]


def _end(find: Callable[[], list[psutil.Process]], grace: float) -> int:
    ended = _distinct(find())
    for process in ended:
        _signal(process, kill=False)
    alive = _wait(ended, grace)
    # The processes may fork while they are being killed, so search again until there are no more.
    # A search takes long on a busy machine.
    deadline = time.monotonic() + max(grace, GRACE_SECONDS)
    while remaining := [process for process in _distinct([*alive, *find()]) if _is_alive(process)]:
        for process in remaining:
            _signal(process, kill=True)
        ended += remaining
        alive = _wait(remaining, grace)
        if time.monotonic() > deadline:
            break
    return len(_distinct(ended))


def _wait(processes: Sequence[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Wait until the processes have ended, but at most for `seconds`. Return the processes that are still alive."""
    deadline = time.monotonic() + seconds
    # `psutil.wait_procs` would read the exit statuses, which `subprocess` needs.
    while (alive := [process for process in processes if _is_alive(process)]) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    return alive


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _marked(mark: str, excluded: Sequence[str] = ()) -> list[psutil.Process]:
    own_pid = os.getpid()
    processes = []
    for process in psutil.process_iter():
        try:
            value = process.environ().get(MARK)
            if value is None or not _is_below(value, mark) or any(_is_below(value, path) for path in excluded):
                continue
            is_alive = process.status() != psutil.STATUS_ZOMBIE
        except (psutil.Error, OSError):  # the process has ended, or belongs to another user
            continue
        if is_alive and process.pid != own_pid:
            processes.append(process)
    return processes


def _is_below(mark: str, directory: str) -> bool:
    return mark == directory or mark.startswith(f"{directory}/")


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
