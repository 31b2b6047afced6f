"""The server of the agent: reads requests as JSON lines from standard input, and writes answers and events to stdout.

A server serves one connection, and ends with the connection. The workloads that it started continue to run. The next
server, which may serve another orchestrator, finds the attempts by their directories.

    {"id": 1, "op": "submit", "directory": D, "order": {...}, "sources": FOLDER | null, "offsets": OFFSETS}
                                                                  -> {"id": 1, "state": ...}
    {"id": 2, "op": "watch", "directories": {D: OFFSETS}}         -> {"id": 2, "states": {D: ...}}
    {"id": 3, "op": "state" | "cancel" | "release", "directory": D}                   -> {"id": 3, "state": ...}
    {"id": 4, "op": "list", "directory": D, "patterns": [...], "most": COUNT}
                                                          -> {"id": 4, "files": [...], "logs": {"stdout": SIZE}}

    {"event": "ended", "directory": D, "outcome": {...} | null, "may_remain": false}
    {"event": "log", "directory": D, "stream": "stdout", "offset": 17, "data": BASE64}

If the supervisor was killed, the outcome is null, and `may_remain` tells whether processes of the workload may still
run.

A state is `running`, `ended`, `lost` (the supervisor was killed) or `absent` (the workload was never started). OFFSETS
are the numbers of bytes of each log that the orchestrator already has, such as `{"stdout": 0, "stderr": 0}`. If OFFSETS
is null, the server sends no logs. If a request fails, the answer is `{"id": 1, "error": TEXT}`.

`submit` is idempotent: only the process that locks the lock file in the directory starts the workload. This process
also renames the folder `sources` to `src/`.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import sys
import time
from typing import Any, Dict, List, Optional, Tuple

from toolbox.agent import attempt_directory, safe_files
from toolbox.agent.log_files import log_name
from toolbox.agent.sampler import GPU_SAMPLES, SAMPLES
from toolbox.agent.supervisor import LOCK, RESULTS, SOURCES, STREAMS, Supervisor

_INPUT, _OUTPUT = 0, 1
_STANDARD = (0, 1, 2)
_TICK_SECONDS = 0.2
_CHUNK_BYTES = 1 << 18

Offsets = Optional[Dict[str, int]]


class Watch:
    """An attempt whose end the server reports to the orchestrator.

    Args:
        offsets: the number of bytes of each log that the orchestrator has; None if the server must not send the logs.
        child: the process id of the supervisor if it is a child of this process; 0 if it is not a child.
    """

    def __init__(self, directory: str, offsets: Offsets, child: int) -> None:
        self.directory = directory
        self.offsets = offsets
        self.descriptor = -1
        self.pid = child or attempt_directory.pid_of(directory)
        if self.pid and hasattr(os, "pidfd_open"):
            try:
                self.descriptor = os.pidfd_open(self.pid)
            except OSError:
                return  # the supervisor has ended
            # If the supervisor is not a child of this process, another process may have reused its process id.
            if not child and attempt_directory.state(directory)["state"] != "running":
                self.close()

    def close(self) -> None:
        """Stop watching the process."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class Server:
    """Serves one connection."""

    def __init__(self) -> None:
        self._watched: Dict[str, Watch] = {}
        self._poll = select.poll()
        self._poll.register(_INPUT, select.POLLIN | select.POLLHUP)
        self._buffer = b""

    def serve(self) -> None:
        """Serve until the orchestrator disconnects."""
        # Begin a new line, because the output of the login shell may not end with a line break.
        os.write(_OUTPUT, b"\n")
        self._send({"event": "hello", "home": os.path.expanduser("~"), "pid": os.getpid(), "python": sys.version})
        while True:
            ready = {descriptor for descriptor, _ in self._poll.poll(self._timeout())}
            if _INPUT in ready and not self._read():
                return
            for watch in list(self._watched.values()):
                if watch.offsets is not None:
                    self._send_logs(watch)
                if watch.descriptor in ready or watch.descriptor < 0:
                    self._report_if_ended(watch)

    def _timeout(self) -> float | None:
        needs_ticks = any(watch.offsets is not None or watch.descriptor < 0 for watch in self._watched.values())
        return _TICK_SECONDS * 1000 if needs_ticks else None

    def _read(self) -> bool:
        content = os.read(_INPUT, 1 << 16)
        *lines, self._buffer = (self._buffer + content).split(b"\n")
        for line in lines:
            request = json.loads(line)
            try:
                answer = getattr(self, f"_do_{request['op']}")(request)
            except Exception as error:
                answer = {"error": _error_text(error)}
            self._send({"id": request["id"], **answer})
        return bool(content)

    def _do_submit(self, request: Dict[str, Any]) -> Dict[str, Any]:
        answer, child = self._submit(request)
        if "error" not in answer:
            self._watch(request["directory"], request["offsets"], child)
        return answer

    def _submit(self, request: Dict[str, Any]) -> Tuple[Dict[str, Any], int]:
        directory = request["directory"]
        for folder in (directory, os.path.join(directory, RESULTS)):
            safe_files.make_directory(folder)
        deadline = time.monotonic() + attempt_directory.TIMEOUT_SECONDS
        lock = safe_files.open_regular(os.path.join(directory, LOCK), os.O_RDWR | os.O_CREAT)
        try:
            while not attempt_directory.try_lock(lock, fcntl.LOCK_EX):
                # The lock is held by a supervisor, or for a moment by a process that reads the state or submits.
                if attempt_directory.pid_of(directory) or time.monotonic() > deadline:
                    return {"state": "running"}, 0
                time.sleep(attempt_directory.LOOK_SECONDS)
            state = attempt_directory.state_of_unlocked(directory)
            if state["state"] != "absent":
                return state, 0
            _clear(directory)
            _move_sources(request["sources"], os.path.join(directory, SOURCES))
            child, fault = self._fork(directory, request["order"], lock)
        finally:
            os.close(lock)
        return {"error": fault} if fault else {"state": "running"}, child

    def _fork(self, directory: str, order: Dict[str, Any], lock: int) -> Tuple[int, str]:
        """Start a supervisor, which keeps the lock. Return its process id, and why it cannot run (empty on success)."""
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.setsid()
                _close_all_except(lock, writer)
                Supervisor(directory, order).run(lambda fault: _report(writer, fault))
            except BaseException as error:
                _report(writer, f"{type(error).__name__}: {error}")
            finally:
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as stream:
            return child, stream.read().decode("utf-8", "replace").strip()

    def _do_watch(self, request: Dict[str, Any]) -> Dict[str, Any]:
        states = {}
        for directory, offsets in request["directories"].items():
            states[directory] = attempt_directory.state(directory)
            if states[directory]["state"] != "absent":
                self._watch(directory, offsets, 0)
        return {"states": states}

    def _watch(self, directory: str, offsets: Offsets, child: int) -> None:
        self._unwatch(directory)
        watch = self._watched[directory] = Watch(directory, offsets, child)
        if watch.descriptor >= 0:
            self._poll.register(watch.descriptor, select.POLLIN)

    def _do_state(self, request: Dict[str, Any]) -> Dict[str, Any]:
        return attempt_directory.state(request["directory"])

    def _do_cancel(self, request: Dict[str, Any]) -> Dict[str, Any]:
        return attempt_directory.cancel(request["directory"])

    def _do_release(self, request: Dict[str, Any]) -> Dict[str, Any]:
        directory = request["directory"]
        if attempt_directory.state(directory)["state"] == "running":
            return {"error": f"{directory} is in use: its workload is still running"}
        self._unwatch(directory)
        _remove(directory)
        return {"error": f"{directory} cannot be removed completely"} if os.path.lexists(directory) else {}

    def _do_list(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """List the files to fetch, and the sizes of the logs."""
        directory = request["directory"]
        return {
            "files": attempt_directory.listing(directory, request["patterns"])[: request["most"]],
            "logs": attempt_directory.log_sizes(directory),
        }

    def _report_if_ended(self, watch: Watch) -> None:
        state = attempt_directory.state(watch.directory)
        if state["state"] == "running":
            return
        if watch.offsets is not None:
            while self._send_logs(watch):
                continue
        self._unwatch(watch.directory)
        if watch.pid:
            try:
                os.waitpid(watch.pid, os.WNOHANG)
            except ChildProcessError:
                pass  # an earlier server started this supervisor
        may_remain = state["state"] != "ended" and attempt_directory.kill(watch.directory)
        event = {"event": "ended", "directory": watch.directory, "outcome": state.get("outcome")}
        self._send({**event, "may_remain": may_remain})

    def _send_logs(self, watch: Watch) -> bool:
        """Send up to one piece of new output per stream, and return whether something was sent."""
        assert watch.offsets is not None
        sent = False
        for stream in STREAMS:
            offset = watch.offsets[stream]
            try:
                content = safe_files.read(os.path.join(watch.directory, log_name(stream)), _CHUNK_BYTES, offset)
            except OSError:
                continue
            if content:
                sent = True
                watch.offsets[stream] += len(content)
                data = base64.b64encode(content).decode()
                self._send(
                    {"event": "log", "directory": watch.directory, "stream": stream, "offset": offset, "data": data}
                )
        return sent

    def _unwatch(self, directory: str) -> None:
        watch = self._watched.pop(directory, None)
        if watch is not None:
            if watch.descriptor >= 0:
                self._poll.unregister(watch.descriptor)
            watch.close()

    def _send(self, message: Dict[str, Any]) -> None:
        content = json.dumps(message).encode() + b"\n"
        while content:
            content = content[os.write(_OUTPUT, content) :]


def _clear(directory: str) -> None:
    """Remove the files of an earlier execution whose file `started` was lost in a power cut."""
    for name in (RESULTS, SAMPLES, GPU_SAMPLES, *map(log_name, STREAMS)):
        safe_files.remove(os.path.join(directory, name))
    safe_files.make_directory(os.path.join(directory, RESULTS))


def _move_sources(sources: Optional[str], target: str) -> None:
    """Move the sent files to `src/`, and replace the files of an earlier submission that failed."""
    if sources and os.path.isdir(sources):
        shutil.rmtree(target, ignore_errors=True)
        os.replace(sources, target)


def _remove(directory: str) -> None:
    """Remove a directory and its content, even if the workload has made folders read-only."""
    if os.path.islink(directory):
        os.unlink(directory)
    folders = [directory]
    for folder in folders:
        folders += _make_writable(folder)
    shutil.rmtree(directory, ignore_errors=True)


def _make_writable(folder: str) -> List[str]:
    """Make a folder writable for its owner, and return its subfolders."""
    try:
        os.chmod(folder, 0o700)
        return [entry.path for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
    except OSError:  # the folder belongs to another user, or was removed
        return []


def _error_text(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename:
        return f"{error.strerror}: {error.filename}"
    return str(error) or type(error).__name__


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


def _report(descriptor: int, fault: str) -> None:
    os.write(descriptor, fault.encode("utf-8", "replace"))
    os.close(descriptor)


def main() -> None:
    """Serve on standard input and output."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # end the server when the orchestrator no longer reads
    Server().serve()
