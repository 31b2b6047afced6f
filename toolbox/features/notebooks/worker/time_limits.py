"""The time limits of the steps of the worker, in seconds, and the longest time that the worker may need.

`toolbox/features/notebooks/` derives the time limit of a cell of the matrix from this time, so that a slow step always
exceeds its own limit first. Only the worker knows which test was too slow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

# Environments, programs and expressions
DESCRIBE_SECONDS: Final = 60.0  # for a Python to describe itself
KILL_SECONDS: Final = 5.0  # until processes have ended after SIGKILL
END_SECONDS: Final = 5.0  # for a program in the background to end
PATTERN_SECONDS: Final = 10.0  # for the expressions of `ignore`
# Kernels
START_TIMEOUT: Final = 120.0  # for a kernel to start
READY_SECONDS: Final = 60.0  # for a kernel to answer, and again to report its language
INTERRUPT_SECONDS: Final = 3.0  # for a kernel to accept an interrupt, and again to end the cell
IOPUB_SECONDS: Final = 30  # for the last outputs of a cell to arrive after the end of the cell
ACCEPT_SECONDS: Final = 5.0  # for a kernel on the same machine to accept a connection
ENDED_SECONDS: Final = 3.0  # for a place to find out how a kernel ended
SHUTDOWN_SECONDS: Final = 3.0  # for a kernel to shut down, and again to end after a signal
# Jupyter servers
SERVER_START_SECONDS: Final = 120.0  # for a server to start a kernel, and for the first answer of this kernel
CONNECT_SECONDS: Final = 60.0  # for the websocket of a kernel to open
CALL_SECONDS: Final = 30.0  # for the answer of a helper kernel
GRACE_SECONDS: Final = 30.0  # for the report about a program that was killed
STOP_SECONDS: Final = 10.0  # for a server to interrupt a kernel

# Estimates for steps without a limit: the start of the worker, the removal of old environments, and the files of a
# notebook.
_WORKER_SECONDS: Final = 120.0
_FILES_SECONDS: Final = 60.0
_CHECK: Final = 2 * KILL_SECONDS
_NOTEBOOK: Final = (
    _FILES_SECONDS
    + START_TIMEOUT
    + 2 * READY_SECONDS
    + IOPUB_SECONDS
    + 2 * INTERRUPT_SECONDS
    + ACCEPT_SECONDS
    + ENDED_SECONDS
    + END_SECONDS
    + 2 * SHUTDOWN_SECONDS
    + KILL_SECONDS
    + PATTERN_SECONDS
)
_SERVER_KERNEL: Final = 2 * SERVER_START_SECONDS + CONNECT_SECONDS + CALL_SECONDS  # its start, first answer and end
_SERVER_CHECK: Final = GRACE_SECONDS + 3 * CALL_SECONDS  # both outputs, and the removal of the files
# The kernel, the kernel of the sampler, the counts of killed processes, and the removal of the files.
_SERVER_NOTEBOOK: Final = 2 * _SERVER_KERNEL + STOP_SECONDS + 4 * CALL_SECONDS


def worker_seconds(
    *, environments: float, checks: Sequence[float], notebooks: Sequence[float], uses_server: bool
) -> float:
    """Return the longest time that a worker may need if no step exceeds its limit.

    Args:
        environments: the time limit of all environments.
        checks: the time limit of each check.
        notebooks: the time limit of each notebook.
        uses_server: whether the kernels run on a Jupyter server.
    """
    seconds = _WORKER_SECONDS + 2 * DESCRIBE_SECONDS + environments
    seconds += sum(checks) + len(checks) * _CHECK + sum(notebooks) + len(notebooks) * _NOTEBOOK
    if uses_server:
        seconds += _SERVER_KERNEL + len(checks) * _SERVER_CHECK + len(notebooks) * _SERVER_NOTEBOOK
    return seconds
