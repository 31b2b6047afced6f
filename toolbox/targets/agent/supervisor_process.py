"""Processes that supervise workloads, each process one workload at a time. The server starts them and sends requests.

A supervisor whose workload has ended waits for the next one, because starting a process costs more than supervising a
short workload. The supervisor is detached: if the server ends, the supervisor continues until its workload has ended.
The parent of each supervisor is its guardian, a process that kills the workload if the supervisor is killed.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import shutil
import signal
import time
from typing import Any, Callable, Dict, Iterator, Optional, Tuple

from toolbox.ground.kit import safe_files
from toolbox.ground.kit.attempt_files import GPU_SAMPLES, LOCK, RESULTS, SAMPLES, SOURCES, STREAMS, log_name
from toolbox.ground.kit.streams import write_all
from toolbox.targets.agent import attempt_directory
from toolbox.targets.agent.supervisor import Supervisor

_STANDARD = (0, 1, 2)
_LENGTH_DIGITS = 8
_ENDED = b"."  # written when the workload has ended, and the process waits for the next one
_MAX_IDLE = 16
_LONGEST_PATH = 1 << 13


class SupervisorProcess:
    """A supervisor, as the server sees it.

    Attributes:
        descriptor: readable when the workload has ended, or the process was killed.
    """

    def __init__(self) -> None:
        request_reader, self._requests = os.pipe()
        self.descriptor, answer_writer = os.pipe()
        try:
            self._guardian = os.fork()
        except OSError:
            for descriptor in (request_reader, answer_writer):
                os.close(descriptor)
            self.abandon()
            raise
        if self._guardian == 0:
            try:
                os.setsid()
                _close_all_except(request_reader, answer_writer)
                _guard(request_reader, answer_writer)
            finally:
                os._exit(0)
        os.close(request_reader)
        os.close(answer_writer)

    def submit(self, request: Dict[str, Any]) -> Optional[Dict[str, Any]]:
        """Submit a workload, and return the answer; None if the process was killed.

        The answer has `is_started` if the process supervises the workload.
        """
        try:
            write_all(self._requests, json.dumps(request).encode() + b"\n")
        except BrokenPipeError:
            return None
        length = _read(self.descriptor, _LENGTH_DIGITS)
        content = _read(self.descriptor, int(length)) if length else b""
        answer: Optional[Dict[str, Any]] = json.loads(content) if content else None
        return answer

    def becomes_idle(self) -> bool:
        """Wait for the end of the workload, and return whether the process can supervise another one."""
        return os.read(self.descriptor, 1) == _ENDED

    def abandon(self) -> None:
        """Let the process end when its workload has ended."""
        os.close(self._requests)
        os.close(self.descriptor)

    def end(self) -> None:
        """End the process, which has no workload or was killed, and wait for its end."""
        self.abandon()
        os.waitpid(self._guardian, 0)


class SupervisorPool:
    """The supervisor processes of one server."""

    def __init__(self) -> None:
        self._idle: list[SupervisorProcess] = []

    def submit(self, request: Dict[str, Any]) -> Tuple[Dict[str, Any], Optional[SupervisorProcess]]:
        """Submit a workload, and return the answer and the process that supervises the workload.

        The process is None if the workload cannot be started, or was started by another submission.
        """
        for process in self._processes():
            answer = process.submit(request)
            if answer is None:
                process.end()
                continue
            if answer.pop("is_started", False):
                return answer, process
            self._idle.append(process)
            return answer, None
        return {"error": "the supervisor ended before the workload was started"}, None

    def take_back(self, process: SupervisorProcess) -> None:
        """Use a process, whose workload has ended, for another workload."""
        if process.becomes_idle() and len(self._idle) < _MAX_IDLE:
            self._idle.append(process)
        else:
            process.end()

    def close(self) -> None:
        """End the processes that have no workload."""
        while self._idle:
            self._idle.pop().end()

    def _processes(self) -> Iterator[SupervisorProcess]:
        """Yield the idle processes, and then a new one. An idle process may have been killed."""
        while self._idle:
            yield self._idle.pop()
        yield SupervisorProcess()


class _Supervised:
    """The directory of the attempt that a supervisor supervises, in memory that its guardian shares."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _LONGEST_PATH)

    def set(self, directory: str) -> None:
        """Store the directory of the attempt; an empty text if there is no attempt."""
        path = os.fsencode(directory)[: _LONGEST_PATH - 1]
        self._memory[: len(path) + 1] = path + b"\0"

    def get(self) -> str:
        """Return the directory of the attempt; empty if there is no attempt."""
        return os.fsdecode(self._memory[:].partition(b"\0")[0])


def _guard(requests: int, answers: int) -> None:
    """Start the supervisor, and wait for its end. Kill the workload of a supervisor that was killed."""
    supervised = _Supervised()
    supervisor = os.fork()
    if supervisor == 0:
        _serve(requests, answers, supervised)
        os._exit(0)
    _close_all_except()
    os.waitpid(supervisor, 0)
    if directory := supervised.get():
        attempt_directory.kill_at_once(directory)


def _serve(requests: int, answers: int, supervised: _Supervised) -> None:
    """Supervise the workloads that the server submits, until the server has ended."""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)

    def answer(content: Dict[str, Any]) -> None:
        text = json.dumps(content).encode()
        try:
            write_all(answers, b"%0*d" % (_LENGTH_DIGITS, len(text)) + text)
        except BrokenPipeError:
            pass  # the server has ended, and its successor finds the attempt

    with os.fdopen(requests, "rb") as stream:
        for line in stream:
            if _supervise(json.loads(line), answer, supervised):
                write_all(answers, _ENDED)


def _supervise(request: Dict[str, Any], answer: Callable[[Dict[str, Any]], None], supervised: _Supervised) -> bool:
    """Start a workload if this submission is the first, and supervise it. Return whether it was started and has ended.

    If this process must not be used for another workload, end it.
    """
    directory = request["directory"]
    starts: list[bool] = []

    def report(fault: str) -> None:
        starts.append(not fault)
        answer({"error": fault} if fault else {"state": "running", "is_started": True})

    try:
        lock, state = _prepare(request)
    except Exception as error:
        answer({"error": error_text(error)})
        return False
    if lock is None:
        answer(state)
        return False
    supervised.set(directory)
    try:
        Supervisor(directory, request["order"]).run(report)
    except BaseException as error:
        if not starts:
            report(f"{type(error).__name__}: {error}")
        raise
    supervised.set("")
    os.close(lock)
    if not _can_go_on(directory):
        os._exit(0)
    return starts == [True]


def _prepare(request: Dict[str, Any]) -> Tuple[Optional[int], Dict[str, Any]]:
    """Prepare the directory of an attempt, and return its lock; None, and the state, if the attempt already exists."""
    directory = request["directory"]
    for folder in (directory, os.path.join(directory, RESULTS)):
        safe_files.make_directory(folder)
    deadline = time.monotonic() + attempt_directory.TIMEOUT_SECONDS
    lock = safe_files.open_regular(os.path.join(directory, LOCK), os.O_RDWR | os.O_CREAT)
    try:
        while not attempt_directory.try_lock(lock, fcntl.LOCK_EX):
            # The lock is held by a supervisor, or for a moment by a process that reads the state or submits.
            if attempt_directory.pid_of(directory) or time.monotonic() > deadline:
                os.close(lock)
                return None, {"state": "running"}
            time.sleep(attempt_directory.LOOK_SECONDS)
        state = attempt_directory.state_of_unlocked(directory)
        if state["state"] == "absent":
            _clear(directory)
            _move_sources(request["sources"], os.path.join(directory, SOURCES))
            return lock, state
    except BaseException:
        os.close(lock)
        raise
    os.close(lock)
    return None, state


def _can_go_on(directory: str) -> bool:
    """Return whether this process may supervise another workload: nothing of the last one can affect it.

    That is not so if children are left, which could not be killed, or while another process cancels the attempt:
    its signal must not reach the next workload. From here on, SIGTERM ends this process.
    """
    if _has_children() or not attempt_directory.can_lock_against_cancel(directory):
        return False
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return True


def _has_children() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def _clear(directory: str) -> None:
    """Remove the files of an earlier execution whose file `started` was lost in a power cut."""
    for name in (SAMPLES, GPU_SAMPLES, *map(log_name, STREAMS)):
        safe_files.remove(os.path.join(directory, name))
    results = os.path.join(directory, RESULTS)
    if os.listdir(results):
        safe_files.remove(results)
        safe_files.make_directory(results)


def _move_sources(sources: Optional[str], target: str) -> None:
    """Move the sent files to `src/`, and replace the files of an earlier submission that failed."""
    if sources and os.path.isdir(sources):
        shutil.rmtree(target, ignore_errors=True)
        os.replace(sources, target)


def _close_all_except(*descriptors: int) -> None:
    """Close all descriptors except these, so that a supervisor does not keep the connection of its server open."""
    null = os.open(os.devnull, os.O_RDWR)
    for standard in _STANDARD:
        os.dup2(null, standard)
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in (*_STANDARD, *descriptors):
            try:
                os.close(int(name))
            except OSError:
                pass  # this was the descriptor that `os.listdir` used


def error_text(error: Exception) -> str:
    """Return the message of an error for the orchestrator."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.strerror}: {error.filename}"
    return str(error) or type(error).__name__


def _read(descriptor: int, count: int) -> bytes:
    """Read exactly `count` bytes; fewer at the end of the stream."""
    content = b""
    while len(content) < count and (piece := os.read(descriptor, count - len(content))):
        content += piece
    return content
