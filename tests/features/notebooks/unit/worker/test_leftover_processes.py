"""Processes that a program leaves are killed, although they have sessions of their own and have lost their parent."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from toolbox.ground.system import places

WORKER = """
import os, sys
from toolbox.ground.kit import process_tree
from toolbox.features.notebooks.worker import worker_processes
process_tree.adopt_orphans()
other = os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "600")
end = worker_processes.run(["sh", "-c", sys.argv[1]])
assert end.status == 0, end
assert os.waitpid(other, os.WNOHANG) == (0, 0), "a process that existed before was killed"
os.kill(other, 9)
os.waitpid(other, 0)
try:
    print(os.waitpid(-1, 0))
except ChildProcessError:
    print("no children")
"""


def test_a_process_with_a_session_of_its_own_is_killed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "left")
    outlet = os.open(tmp_path / "left", os.O_RDONLY | os.O_NONBLOCK)
    opened = f"exec 8> {tmp_path}/left; "
    daemon = f"{opened} env -i setsid sh -c '(sleep 600 &) ; sleep 600' & sleep 0 & exit 0"
    done = subprocess.run(
        [sys.executable, "-c", WORKER, daemon], cwd=places.builtin_root(), capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("no children\n", "")
    os.set_blocking(outlet, True)
    assert os.read(outlet, 1) == b""  # no process has the other end
    os.close(outlet)
