"""Reads the state of an attempt from its directory, lists the files of the attempt, and ends its workload."""

from __future__ import annotations

import fcntl
import json
import os
import pathlib
import signal
import time
from typing import Any, Dict, List, Optional, Sequence

from toolbox.ground.kit import process_tree, safe_files
from toolbox.ground.kit.attempt_files import (
    EXIT_CODE,
    GPU_SAMPLES,
    LOCK,
    OUTCOME,
    RESULTS,
    SAMPLES,
    STARTED,
    STREAMS,
    log_name,
)
from toolbox.targets.agent import cgroups, machine

TIMEOUT_SECONDS = 10.0
LOOK_SECONDS = 0.02
_KILL_SECONDS = 2.0
_LONGEST_RECORD = 1 << 16
LISTED = (OUTCOME, EXIT_CODE, SAMPLES, GPU_SAMPLES)


def state(directory: str) -> Dict[str, Any]:
    """Return the state of an attempt.

    The state is `running`, `ended` (with an outcome), `lost` (the supervisor was killed), or `absent` (the workload was
    never started).
    """
    try:
        lock = safe_files.open_regular(os.path.join(directory, LOCK), os.O_RDWR)
    except OSError:
        return state_of_unlocked(directory)
    try:
        # Take a shared lock, because several processes may read the state at the same time.
        return state_of_unlocked(directory) if try_lock(lock, fcntl.LOCK_SH) else {"state": "running"}
    finally:
        os.close(lock)


def state_of_unlocked(directory: str) -> Dict[str, Any]:
    """Return the state of an attempt whose lock no supervisor holds."""
    if safe_files.is_regular(os.path.join(directory, EXIT_CODE)):
        outcome = _record(directory, OUTCOME)
        return {"state": "ended", "outcome": outcome} if outcome else {"state": "lost"}
    return {"state": "lost" if os.path.lexists(os.path.join(directory, STARTED)) else "absent"}


def try_lock(descriptor: int, mode: int) -> bool:
    """Try to lock a file with `flock` without waiting, and return whether it was locked."""
    try:
        fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def pid_of(directory: str) -> int:
    """Return the process id of the supervisor of an attempt; 0 if the supervisor does not run."""
    pid = _record(directory, STARTED).get("pid")
    return pid if isinstance(pid, int) and _holds_lock(pid, directory) else 0


def cancel(directory: str) -> Dict[str, Any]:
    """Request the end of a workload from its supervisor, and return the state before the request.

    If the supervisor does not run, kill the remaining processes of the attempt.
    """
    descriptor = _open_directory(directory)
    try:
        if descriptor is not None:
            # The supervisor does not begin with another workload, which the signal would end, while this lock is held.
            # The lock is not needed if another process holds it: see `can_lock_against_cancel`.
            try_lock(descriptor, fcntl.LOCK_SH)
        return _cancel(directory)
    finally:
        if descriptor is not None:
            os.close(descriptor)


def can_lock_against_cancel(directory: str) -> bool:
    """Return whether no process is cancelling an attempt that has ended. From then on, `cancel` sends no signal.

    The supervisor calls this function after it has released the lock of the attempt.
    """
    descriptor = _open_directory(directory)
    if descriptor is None:
        return False
    try:
        return try_lock(descriptor, fcntl.LOCK_EX)
    finally:
        os.close(descriptor)


def _open_directory(directory: str) -> Optional[int]:
    try:
        return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None


def _cancel(directory: str) -> Dict[str, Any]:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    old_state, pid = state(directory), pid_of(directory)
    while old_state["state"] == "running" and not pid and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)  # the supervisor is about to start
        old_state, pid = state(directory), pid_of(directory)
    if old_state["state"] == "running" and pid:
        process_tree.send(pid, signal.SIGTERM)
    else:
        kill(directory)
    return old_state


def listing(directory: str, patterns: Sequence[str]) -> List[str]:
    """Return the paths of the files to fetch, relative to the directory of an attempt.

    They are the files below `files/` that match a pattern or are inside a matching folder, and the outcome, the exit
    code and the samples, if they exist.
    """
    top = pathlib.Path(directory)
    results = top / RESULTS
    matches = {path for pattern in patterns for path in results.glob(pattern)}
    inside = {path for folder in matches if folder.is_dir() and not folder.is_symlink() for path in folder.rglob("*")}
    files = [path for path in matches | inside if path.is_symlink() or not path.is_dir()]
    files += [top / name for name in LISTED if safe_files.is_regular(str(top / name))]
    return sorted(str(path.relative_to(top)) for path in files)


def log_sizes(directory: str) -> Dict[str, int]:
    """Return the sizes of the existing logs of an attempt, by stream."""
    files = {stream: os.path.join(directory, log_name(stream)) for stream in STREAMS}
    return {stream: os.lstat(file).st_size for stream, file in files.items() if safe_files.is_regular(file)}


def kill(directory: str) -> bool:
    """Kill the processes of an attempt whose supervisor was killed, and return whether some may remain.

    If the attempt has a cgroup, the cgroup contains all processes of the attempt. Without a cgroup, the processes are
    found by the environment variable `TOPGALLANT_STEP`, and a process that has cleared its environment is not found.
    """
    groups = cgroups.find(directory)
    are_empty = [cgroups.kill(group) for group in groups]
    _kill_marked(directory)
    boot = _record(directory, STARTED).get("boot") or machine.boot()
    # No process survives a restart of the machine.
    return not (groups and all(are_empty)) and boot == machine.boot()


def kill_at_once(directory: str) -> None:
    """Kill the processes of an attempt whose supervisor was killed. Leave its cgroup, which `kill` must find."""
    for group in cgroups.find(directory):
        cgroups.send_kill(group)
    _kill_marked(directory)


def _kill_marked(directory: str) -> None:
    deadline = time.monotonic() + _KILL_SECONDS
    # The processes may fork while they are being killed, so search again until there are no more.
    while (remaining := process_tree.marked(directory)) and time.monotonic() < deadline:
        for pid in remaining:
            process_tree.send(pid, signal.SIGKILL)
        time.sleep(LOOK_SECONDS)


def _record(directory: str, name: str) -> Dict[str, Any]:
    """Return the content of a JSON file of the supervisor; empty if the file is missing or malformed."""
    try:
        record = json.loads(safe_files.read(os.path.join(directory, name), _LONGEST_RECORD))
    except (OSError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _holds_lock(pid: int, directory: str) -> bool:
    """Return whether a process has the lock file of an attempt open. Only the supervisor keeps the file open.

    The process id must be checked, because the workload can write any process id into the file `started`.
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
