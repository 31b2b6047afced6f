"""The agent as the program of a pod's containers. It serves no connection: its arguments tell it what to do.

    supervise DIRECTORY ORDER -- COMMAND...   in the container `workload`: run the workload, print its logs
    keep DIRECTORY SECONDS PATTERNS           in the container `files`: keep the files until the pod is deleted
    send DIRECTORY PATTERNS LOGS              executed in a container: write the files as an archive, in pieces
    cancel DIRECTORY                          executed in `workload`: end the workload

ORDER and PATTERNS are JSON. The outcome is the termination message of the container `workload`, which is a part of the
pod's status: reading it needs no further request. The message also carries short logs. Longer logs are fetched by
`send`, from the container `files`; without this container, `workload` keeps running until its logs have been fetched.
The container exits with the status of the workload. If the agent ended the workload, for example after a timeout, and
that status is 0, the container exits with 1.

While `send` runs, each line on its input requests one piece of the archive. A piece begins with its length in eight
digits; the length 0 marks the end. If logs were requested, one more line says that they are on the disk of the other
side. `send` confirms this line, and only then lets the container end. While the workload runs, `send` sends no logs.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import tarfile
import time
from contextlib import suppress
from typing import Any, BinaryIO, Callable, Dict, List, Mapping

from toolbox.ground.kit import process_tree, safe_files
from toolbox.ground.kit.attempt_files import EXIT_CODE, LOCK, OUTCOME, RESULTS, SOURCES, STARTED, STREAMS, log_name
from toolbox.targets.agent import attempt_directory, log_transfer
from toolbox.targets.agent.echo import Echo
from toolbox.targets.agent.supervisor import Supervisor

ARCHIVE = "/topgallant/sources/sources.tar.gz"
TERMINATION_LOG = "/dev/termination-log"
CANCELLING = "cancelling\n"
WORKLOAD_RUNS = b"running\n"  # `send` prints this instead of the length of a piece
CONFIRMED = b"released"
LOGS_SENT = "logs_sent"  # a file in the directory of the attempt: its logs need not be kept
HOLDING = "[topgallant: the workload has ended; this container runs until its logs have been fetched]"
_PIECE_BYTES = 1 << 20
_LOOK_SECONDS = 0.2
_FIRST_REPEAT_SECONDS = 5.0
_LONGEST_REPEAT_SECONDS = 60.0
# A kubelet divides 12 KiB among the containers of a pod, including init containers and containers that others inject,
# and cuts off the rest of each message. This is enough for 8 containers.
_MAX_MESSAGE_BYTES = 1400
_IN_TERMINATION_MESSAGE = {OUTCOME, EXIT_CODE}
_ENDED_BY_ITSELF = ("exit", "signal")
_FAILED = 1


def supervise(directory: str, order: Dict[str, Any], command: List[str]) -> int:
    """Run a workload, and return the exit status of the container.

    Args:
        order: see `Supervisor`; here `secrets` are the names of the variables that hold secrets, `collect` has the
            patterns of the files to fetch, and `hold_seconds` is how long to wait until long logs have been fetched.
    """
    os.makedirs(os.path.join(directory, RESULTS), mode=0o700, exist_ok=True)
    lock = safe_files.open_regular(os.path.join(directory, LOCK), os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    if os.path.exists(ARCHIVE):
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(os.path.join(directory, SOURCES))  # noqa: S202  # the archive is our own
    secrets = [os.environ[name] for name in order["secrets"] if os.environ.get(name)]
    faults: List[str] = []
    with suppress(OSError):  # the workload may fill the disk
        os.close(safe_files.open_regular(_placeholder(directory), os.O_WRONLY | os.O_CREAT))
    logs = [os.path.join(directory, log_name(stream)) for stream in STREAMS]
    echoes = [Echo(log, descriptor) for descriptor, log in enumerate(logs, start=1)]
    whole = {**order, "command": command, "env": {}, "secrets": secrets}
    supervisor = Supervisor(directory, whole, echoes)
    supervisor.run(faults.append)
    if any(faults):
        raise SystemExit("\n".join(faults))
    outcome = attempt_directory.state_of_unlocked(directory)["outcome"]
    code = int(outcome["exit_code"])
    status = code if outcome["ended_by"] in _ENDED_BY_ITSELF else code or _FAILED
    left = len(_files_to_send(directory, order["collect"]))
    if _report({**outcome, "left": left}, supervisor.checksums(), directory):
        _note_logs_sent(directory)
    else:
        _hold(directory, order["hold_seconds"], supervisor.late_signals)
    return status


def _report(outcome: Dict[str, Any], logs: Dict[str, List[int]], directory: str) -> bool:
    """Write the termination message, and return whether it carries the logs."""
    content = log_transfer.pack(directory, logs)
    whole = json.dumps({**outcome, "logs": {**logs, log_transfer.CONTENT: content}})
    is_short = content is not None and len(whole) <= _MAX_MESSAGE_BYTES
    with open(TERMINATION_LOG, "w", encoding="utf-8") as stream:
        stream.write(whole if is_short else json.dumps({**outcome, "logs": logs}))
    return is_short


def _placeholder(directory: str) -> str:
    """Return the path of an empty file that exists from the start: on a full disk it can still be renamed."""
    return os.path.join(directory, f".{LOGS_SENT}")


def _note_logs_sent(directory: str) -> None:
    name = os.path.join(directory, LOGS_SENT)
    try:
        safe_files.rename(_placeholder(directory), name)
    except OSError:  # the workload has deleted the placeholder
        with suppress(OSError):
            safe_files.replace(name, b"")


def _hold(directory: str, seconds: float, stops: List[int]) -> None:
    """Wait until the logs have been fetched or `stops` has a signal, at most for `seconds`.

    The last line of the output requests the logs. The output does not block, and may have lost its reader. The line is
    repeated, with growing pauses: a node that begins a new log file does not show the lines of the file before.
    """
    now = time.monotonic()
    deadline, repeat_at, pause = now + seconds, now + _FIRST_REPEAT_SECONDS, _FIRST_REPEAT_SECONDS
    rest = f"\n{HOLDING}\n".encode()
    while not stops and now < deadline and not safe_files.is_regular(os.path.join(directory, LOGS_SENT)):
        if not rest and now >= repeat_at:
            pause = min(2 * pause, _LONGEST_REPEAT_SECONDS)
            rest, repeat_at = f"{HOLDING}\n".encode(), now + pause
        if rest:
            with suppress(OSError):
                rest = rest[os.write(sys.stdout.fileno(), rest) :]
        time.sleep(_LOOK_SECONDS)
        now = time.monotonic()


def keep(directory: str, seconds: float, patterns: List[str]) -> int:
    """Wait for the end of the workload, then keep the container running for `seconds` if something must be fetched.

    That is so if there are files, if the logs have not been sent, or if the outcome is missing.
    """
    signal.signal(signal.SIGTERM, lambda _number, _frame: os._exit(0))
    while not safe_files.is_regular(os.path.join(directory, STARTED)):
        time.sleep(_LOOK_SECONDS)
    lock = safe_files.open_regular(os.path.join(directory, LOCK), os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_SH)  # returns when the supervisor has ended, for any reason
    os.close(lock)
    is_complete = all(safe_files.is_regular(os.path.join(directory, name)) for name in (LOGS_SENT, OUTCOME))
    if _files_to_send(directory, patterns) or not is_complete:
        time.sleep(seconds)
    return 0


def send(directory: str, patterns: List[str], logs: List[str]) -> int:
    """Write an archive of the files that a workload left, and of the given logs, to standard output."""
    has_ended = safe_files.is_regular(os.path.join(directory, EXIT_CODE))
    if logs and not has_ended and attempt_directory.state(directory)["state"] == "running":
        _write(WORKLOAD_RUNS)  # the workload may have printed the line that requests its logs
        return _FAILED
    with tarfile.open(fileobj=_Pieces(), mode="w|", bufsize=_PIECE_BYTES, format=tarfile.GNU_FORMAT) as archive:  # type: ignore[call-overload]  # it has all of a file that is used
        for name in [*map(log_name, logs), *_files_to_send(directory, patterns)]:
            _add(archive, os.path.join(directory, name), name)
    _send_piece(b"")
    if logs:
        _await_request()
        _write(CONFIRMED)  # first: LOGS_SENT, written next, lets the container end, which may kill this process
        if has_ended:
            _note_logs_sent(directory)
    return 0


def cancel(directory: str) -> int:
    """End a workload that runs. The message is printed before the signal: the container may end before this process."""
    deadline = time.monotonic() + attempt_directory.TIMEOUT_SECONDS
    while _is_absent(directory) and time.monotonic() < deadline:
        time.sleep(attempt_directory.LOOK_SECONDS)  # the container has just started
    if _is_absent(directory):
        sys.stderr.write("there is no workload\n")
        return _FAILED
    _write(CANCELLING.encode())
    if not safe_files.is_regular(os.path.join(directory, EXIT_CODE)):  # a signal would end the wait for the logs
        attempt_directory.cancel(directory)
    return 0


def _is_absent(directory: str) -> bool:
    """Return whether no workload was started. A workload that runs may have deleted its directory."""
    return attempt_directory.state(directory)["state"] == "absent" and not process_tree.marked(directory)


def _files_to_send(directory: str, patterns: List[str]) -> List[str]:
    """Return the files that match a pattern, except those that the termination message carries."""
    return [name for name in attempt_directory.listing(directory, patterns) if name not in _IN_TERMINATION_MESSAGE]


class _Pieces:
    """A file for `tarfile` that writes each piece when the other side requests it."""

    def write(self, content: bytes) -> int:
        """Write a piece of the archive."""
        for start in range(0, len(content), _PIECE_BYTES):
            _send_piece(content[start : start + _PIECE_BYTES])
        return len(content)


class _Padded:
    """Reads a file, and pads it to the size in its header if the file has shrunk: the archive stays valid."""

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self._stream = stream
        self._name = name

    def read(self, count: int = 0, /) -> bytes:
        """Return exactly `count` bytes."""
        content, fault = b"", "it has become shorter"
        try:
            while len(content) < count and (piece := self._stream.read(count - len(content))):
                content += piece
        except OSError as error:
            fault = str(error.strerror)
        if len(content) < count:
            sys.stderr.write(f"{self._name} is incomplete: {fault}\n")
        return content + bytes(count - len(content))


def _send_piece(content: bytes) -> None:
    _await_request()
    _write(b"%08d" % len(content) + content)


def _await_request() -> None:
    if not sys.stdin.buffer.readline():
        raise SystemExit(_FAILED)  # the other side has gone


def _write(content: bytes) -> None:
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def _add(archive: tarfile.TarFile, path: str, name: str) -> None:
    try:
        info = archive.gettarinfo(path, name)
        if safe_files.is_regular(path):
            # A hard link is sent as a file of its own.
            info.type, info.linkname = tarfile.REGTYPE, ""
            with os.fdopen(safe_files.open_regular(path), "rb") as stream:
                info.size = os.fstat(stream.fileno()).st_size
                archive.addfile(info, _Padded(stream, name))
        elif info.issym():
            archive.addfile(info)
    except OSError as error:
        sys.stderr.write(f"{name} is left out: {error.strerror}\n")


_VERBS: Mapping[str, Callable[..., int]] = {"keep": keep, "send": send, "cancel": cancel}


def main() -> None:
    """Carry out the command in the arguments."""
    verb, directory, *rest = sys.argv[1:]
    if verb == "supervise":
        status = supervise(directory, json.loads(rest[0]), rest[2:])
    else:
        status = _VERBS[verb](directory, *map(json.loads, rest))
    # Exit without flushing the standard streams again: their reader may be stuck.
    os._exit(status)
