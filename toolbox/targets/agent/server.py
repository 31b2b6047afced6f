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

`submit` is idempotent: only the supervisor that locks the lock file in the directory starts the workload. It also
renames the folder `sources` to `src/`.
"""

from __future__ import annotations

import base64
import gc
import json
import os
import select
import shutil
import sys
from typing import Any, Dict, List, Optional

from toolbox.ground.kit import safe_files
from toolbox.ground.kit.attempt_files import STREAMS, log_name
from toolbox.ground.kit.streams import write_all
from toolbox.targets.agent import attempt_directory, supervisor_process
from toolbox.targets.agent.supervisor_process import SupervisorPool, SupervisorProcess

_INPUT, _OUTPUT = 0, 1
_TICK_SECONDS = 0.2
_CHUNK_BYTES = 1 << 18

Offsets = Optional[Dict[str, int]]


class Watch:
    """An attempt whose end the server reports to the orchestrator.

    Args:
        offsets: the number of bytes of each log that the orchestrator has; None if the server must not send the logs.
        process: the process that supervises the workload; None if another server started it. Then the server looks for
            the end in intervals.
    """

    def __init__(self, directory: str, offsets: Offsets, process: Optional[SupervisorProcess]) -> None:
        self.directory = directory
        self.offsets = offsets
        self.process = process


class Server:
    """Serves one connection."""

    def __init__(self) -> None:
        self._watched: Dict[str, Watch] = {}
        self._poll = select.poll()
        self._poll.register(_INPUT, select.POLLIN | select.POLLHUP)
        self._buffer = b""
        self._supervisors = SupervisorPool()

    def serve(self) -> None:
        """Serve until the orchestrator disconnects."""
        # Begin a new line, because the output of the login shell may not end with a line break.
        os.write(_OUTPUT, b"\n")
        self._send({"event": "hello", "home": os.path.expanduser("~"), "pid": os.getpid(), "python": sys.version})
        while True:
            ready = {descriptor for descriptor, _ in self._poll.poll(self._timeout())}
            if _INPUT in ready and not self._read():
                self._supervisors.close()
                return
            for watch in list(self._watched.values()):
                if watch.offsets is not None:
                    self._send_logs(watch)
                if watch.process is None or watch.process.descriptor in ready:
                    self._report_if_ended(watch)

    def _timeout(self) -> float | None:
        needs_ticks = any(watch.offsets is not None or watch.process is None for watch in self._watched.values())
        return _TICK_SECONDS * 1000 if needs_ticks else None

    def _read(self) -> bool:
        content = os.read(_INPUT, 1 << 16)
        *lines, self._buffer = (self._buffer + content).split(b"\n")
        for line in lines:
            request = json.loads(line)
            try:
                answer = getattr(self, f"_do_{request['op']}")(request)
            except Exception as error:
                answer = {"error": supervisor_process.error_text(error)}
            self._send({"id": request["id"], **answer})
        return bool(content)

    def _do_submit(self, request: Dict[str, Any]) -> Dict[str, Any]:
        answer, process = self._supervisors.submit(request)
        if "error" not in answer:
            self._watch(request["directory"], request["offsets"], process)
        return answer

    def _do_watch(self, request: Dict[str, Any]) -> Dict[str, Any]:
        states = {}
        for directory, offsets in request["directories"].items():
            states[directory] = attempt_directory.state(directory)
            if states[directory]["state"] != "absent":
                self._watch(directory, offsets, None)
        return {"states": states}

    def _watch(self, directory: str, offsets: Offsets, process: Optional[SupervisorProcess]) -> None:
        earlier = self._unwatch(directory)
        if process is None:
            process = earlier
        elif earlier is not None:
            earlier.abandon()  # the directory was removed while its workload was running
        if process is not None:
            self._poll.register(process.descriptor, select.POLLIN)
        self._watched[directory] = Watch(directory, offsets, process)

    def _do_state(self, request: Dict[str, Any]) -> Dict[str, Any]:
        return attempt_directory.state(request["directory"])

    def _do_cancel(self, request: Dict[str, Any]) -> Dict[str, Any]:
        return attempt_directory.cancel(request["directory"])

    def _do_release(self, request: Dict[str, Any]) -> Dict[str, Any]:
        directory = request["directory"]
        if attempt_directory.state(directory)["state"] == "running":
            return {"error": f"{directory} is in use: its workload is still running"}
        process = self._unwatch(directory)
        if process is not None:
            process.abandon()
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
        process = self._unwatch(watch.directory)
        if process is not None:
            self._supervisors.take_back(process)
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

    def _unwatch(self, directory: str) -> Optional[SupervisorProcess]:
        """Stop watching an attempt, and return its supervisor; None if the supervisor is not known."""
        watch = self._watched.pop(directory, None)
        if watch is None or watch.process is None:
            return None
        self._poll.unregister(watch.process.descriptor)
        return watch.process

    def _send(self, message: Dict[str, Any]) -> None:
        write_all(_OUTPUT, json.dumps(message).encode() + b"\n")


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


def main() -> None:
    """Serve on standard input and output."""
    gc.freeze()  # exclude imported objects from garbage collection, which would copy their memory in each fork
    try:
        Server().serve()
    except BrokenPipeError:
        pass  # the orchestrator no longer reads
