"""Reads the state of an attempt from its directory, lists the files that it left, and ends it."""

from __future__ import annotations

import fcntl
import json
import os
import pathlib
import signal
import time
from typing import Any, Dict, List, Sequence

from toolbox.agent import cgroups, machine, safe_files, tree
from toolbox.agent.log_files import log_name
from toolbox.agent.sampler import GPU_SAMPLES, SAMPLES
from toolbox.agent.supervisor import EXIT_CODE, LOCK, MARK, OUTCOME, RESULTS, STARTED, STREAMS

TIMEOUT_SECONDS = 10.0
LOOK_SECONDS = 0.02
_KILL_SECONDS = 2.0
_LONGEST_RECORD = 1 << 16
LISTED = (OUTCOME, EXIT_CODE, SAMPLES, GPU_SAMPLES)


def state(directory: str) -> Dict[str, Any]:
    """Return the state of an attempt: `running`, `ended` (with an outcome), `lost`, or `absent` (never started)."""
    try:
        lock = safe_files.open_regular(os.path.join(directory, LOCK), os.O_RDWR)
    except OSError:
        return state_of_unlocked(directory)
    try:
        # A shared lock: several processes may read the state at the same time.
        return state_of_unlocked(directory) if locks(lock, fcntl.LOCK_SH) else {"state": "running"}
    finally:
        os.close(lock)


def state_of_unlocked(directory: str) -> Dict[str, Any]:
    """Return the state of an attempt whose lock is free, or is held by the caller."""
    if safe_files.is_regular(os.path.join(directory, EXIT_CODE)):
        outcome = _record(directory, OUTCOME)
        return {"state": "ended", "outcome": outcome} if outcome else {"state": "lost"}
    return {"state": "lost" if os.path.lexists(os.path.join(directory, STARTED)) else "absent"}


def locks(descriptor: int, how: int) -> bool:
    """Try to take a lock without waiting, as `flock` does, and return whether the lock was taken."""
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def pid_of(directory: str) -> int:
    """Return the process id of the supervisor, or 0 if the supervisor does not run."""
    pid = _record(directory, STARTED).get("pid")
    return pid if isinstance(pid, int) and _holds_lock(pid, directory) else 0


def cancel(directory: str) -> Dict[str, Any]:
    """End a workload, and return the state that it had. Without a supervisor, kill the processes of the attempt."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    found, pid = state(directory), pid_of(directory)
    while found["state"] == "running" and not pid and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)  # the supervisor is about to start
        found, pid = state(directory), pid_of(directory)
    if found["state"] == "running" and pid:
        tree.send(pid, signal.SIGTERM)
    else:
        kill(directory)
    return found


def listing(directory: str, patterns: Sequence[str]) -> List[str]:
    """Return the files of an attempt that match a pattern, by their paths relative to its directory."""
    top = pathlib.Path(directory)
    results = top / RESULTS
    found = {path for pattern in patterns for path in results.glob(pattern)}
    inside = {path for folder in found if folder.is_dir() and not folder.is_symlink() for path in folder.rglob("*")}
    kept = [path for path in found | inside if path.is_symlink() or not path.is_dir()]
    # Outside of `files/`, list only known names: the orchestrator may keep other files of the attempt there.
    beside = [top / name for name in LISTED if safe_files.is_regular(str(top / name))]
    return sorted(str(path.relative_to(top)) for path in [*kept, *beside])


def log_sizes(directory: str) -> Dict[str, int]:
    """Return the sizes of the existing logs of an attempt, by stream."""
    files = {stream: os.path.join(directory, log_name(stream)) for stream in STREAMS}
    return {stream: os.lstat(file).st_size for stream, file in files.items() if safe_files.is_regular(file)}


def kill(directory: str) -> bool:
    """Kill the processes that a killed supervisor left, and return whether processes of the attempt may remain.

    The attempt's cgroup contains all of its processes. Without a cgroup, only processes that carry the mark of the
    attempt are found: a process that has cleared its environment may run on.
    """
    groups = cgroups.find(directory)
    are_gone = [cgroups.kill(group) for group in groups]
    deadline = time.monotonic() + _KILL_SECONDS
    # The next pass finds the processes that were forked during this one.
    while (left := tree.marked(MARK, directory)) and time.monotonic() < deadline:
        for pid in left:
            tree.send(pid, signal.SIGKILL)
        time.sleep(LOOK_SECONDS)
    boot = _record(directory, STARTED).get("boot") or machine.boot()
    return not (groups and all(are_gone)) and boot == machine.boot()


def _record(directory: str, name: str) -> Dict[str, Any]:
    """Return the content of a JSON file of the supervisor; empty if the workload has overwritten the file."""
    try:
        found = json.loads(safe_files.read(os.path.join(directory, name), _LONGEST_RECORD))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _holds_lock(pid: int, directory: str) -> bool:
    """Return whether a process has the lock of an attempt open: only its supervisor has, not the workload.

    The check is needed because the workload can write any process id into `started`.
    """
    folder = f"/proc/{pid}/fd"
    try:
        lock = os.lstat(os.path.join(directory, LOCK))
        names = os.listdir(folder)
    except OSError:
        return False
    return any(_is_same(os.path.join(folder, name), lock) for name in names)


def _is_same(path: str, file: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path), file)
    except OSError:
        return False
