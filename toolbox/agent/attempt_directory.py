"""An attempt as its directory shows it: how it stands, what it has left, and how it is ended."""

from __future__ import annotations

import fcntl
import json
import os
import pathlib
import signal
import time
from typing import Any, Dict, List, Sequence

from toolbox.agent import cgroups, machine, safe_files, tree
from toolbox.agent.sampler import GPU_SAMPLES, SAMPLES
from toolbox.agent.supervisor import EXIT_CODE, LOCK, MARK, OUTCOME, STARTED, STREAMS

PATIENCE_SECONDS = 10.0
LOOK_SECONDS = 0.02
_KILL_SECONDS = 2.0
_LONGEST_RECORD = 1 << 16
LISTED = (OUTCOME, EXIT_CODE, SAMPLES, GPU_SAMPLES)


def state(directory: str) -> Dict[str, Any]:
    """Return how an attempt stands: `running`, `ended` with its outcome, `lost`, or `absent` where none was started."""
    try:
        lock = safe_files.open_regular(os.path.join(directory, LOCK), os.O_RDWR)
    except OSError:
        return state_of_unlocked(directory)
    try:
        # Shared: others may have a look at the same time.
        return state_of_unlocked(directory) if locks(lock, fcntl.LOCK_SH) else {"state": "running"}
    finally:
        os.close(lock)


def state_of_unlocked(directory: str) -> Dict[str, Any]:
    """Return how an attempt stands whose lock nobody holds, or we do."""
    if safe_files.is_regular(os.path.join(directory, EXIT_CODE)):
        outcome = _record(directory, OUTCOME)
        return {"state": "ended", "outcome": outcome} if outcome else {"state": "lost"}
    return {"state": "lost" if os.path.lexists(os.path.join(directory, STARTED)) else "absent"}


def locks(descriptor: int, how: int) -> bool:
    """Take a lock, as `flock` takes it, and tell whether that was possible at once."""
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def pid_of(directory: str) -> int:
    """Return the number of the supervisor's process; 0 before the supervisor starts and after it has ended."""
    pid = _record(directory, STARTED).get("pid")
    return pid if isinstance(pid, int) and _holds_lock(pid, directory) else 0


def cancel(directory: str) -> Dict[str, Any]:
    """End a workload, and return how it stood; where there is nobody to be asked to do it, by force."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    found, pid = state(directory), pid_of(directory)
    while found["state"] == "running" and not pid and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)  # it is about to be started
        found, pid = state(directory), pid_of(directory)
    if found["state"] == "running" and pid:
        tree.send(pid, signal.SIGTERM)
    else:
        kill(directory)
    return found


def listing(directory: str, patterns: Sequence[str]) -> List[str]:
    """Return the files that an attempt left, those that match a pattern, by their paths in its directory."""
    top = pathlib.Path(directory)
    results = top / "files"
    found = {path for pattern in patterns for path in results.glob(pattern)}
    inside = {path for folder in found if folder.is_dir() and not folder.is_symlink() for path in folder.rglob("*")}
    kept = [path for path in found | inside if path.is_symlink() or not path.is_dir()]
    # Of what lies beside them only what is ours: the other side has more files of an attempt than these.
    beside = [top / name for name in LISTED if safe_files.is_regular(str(top / name))]
    return sorted(str(path.relative_to(top)) for path in [*kept, *beside])


def log_sizes(directory: str) -> Dict[str, int]:
    """Return the sizes of the logs of an attempt, of those that there are."""
    files = {stream: os.path.join(directory, f"{stream}.log") for stream in STREAMS}
    return {stream: os.lstat(file).st_size for stream, file in files.items() if safe_files.is_regular(file)}


def kill(directory: str) -> bool:
    """Kill the processes that a killed supervisor left, and tell whether processes of the attempt may remain.

    The attempt's cgroup contains all of its processes. Without a cgroup, only processes that carry the mark of the
    attempt are found: a process that has cleared its environment may run on.
    """
    groups = cgroups.find(directory)
    are_gone = [cgroups.kill(group) for group in groups]
    deadline = time.monotonic() + _KILL_SECONDS
    # What was forked after a look is found by the next one.
    while (left := tree.marked(MARK, directory)) and time.monotonic() < deadline:
        for pid in left:
            tree.send(pid, signal.SIGKILL)
        time.sleep(LOOK_SECONDS)
    boot = _record(directory, STARTED).get("boot") or machine.boot()
    return not (groups and all(are_gone)) and boot == machine.boot()


def _record(directory: str, name: str) -> Dict[str, Any]:
    """Return what a file of the supervisor holds; nothing where the workload has written something else."""
    try:
        found = json.loads(safe_files.read(os.path.join(directory, name), _LONGEST_RECORD))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _holds_lock(pid: int, directory: str) -> bool:
    """Tell whether a process has the lock of an attempt open, as its supervisor has, and the workload has not.

    The workload can write the number of any process into `started`.
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
