"""Provides the libraries of the worker itself, in an environment that no test uses.

The Python that starts the worker may lack papermill and nbclient. The worker must not install them into the runtime,
because they would change the packages that are tested. So it makes an environment for itself and starts again with
the Python of that environment.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from .environments import EnvironmentStore

REQUIREMENTS: Final = (  # pinned, so that all targets execute notebooks in the same way
    "papermill==2.6.0",
    "nbclient==0.10.2",
    "nbformat==5.10.4",
    "jupyter_client==8.6.3",
    "nvidia-ml-py==12.575.51",
)
# pynvml is not needed: without it, only the samples of GPUs are missing.
NEEDED: Final = ("papermill", "nbclient", "nbformat", "jupyter_client")
_LOCK_VARIABLE: Final = "TOPGALLANT_NOTEBOOK_WORKER_LOCK"
_STARTED_VARIABLE: Final = "TOPGALLANT_NOTEBOOK_WORKER_STARTED"


def missing() -> list[str]:
    """Return the modules that the worker needs and this Python lacks."""
    return [name for name in NEEDED if importlib.util.find_spec(name) is None]


def started() -> float:
    """Return when the worker was started first, by `time.monotonic`, which is the same clock in all processes.

    The worker may have been started again by `ensure`.
    """
    return float(os.environ.pop(_STARTED_VARIABLE, time.monotonic()))


def ensure(store: EnvironmentStore, arguments: Sequence[str]) -> None:
    """Return if this Python has the libraries. Otherwise start the worker again with a Python that has them.

    Args:
        store: where the environment is made.
        arguments: the command line after the interpreter.

    Raises:
        PlaceError: the libraries cannot be installed.
    """
    _keep_lock()
    if not missing():
        return
    store.log.line(f"{sys.executable} lacks {', '.join(missing())}; the worker makes an environment for itself")
    environment = store.acquire(REQUIREMENTS, sys.executable)
    # The new program inherits the lock, so that no other worker removes the environment.
    os.set_inheritable(environment.lock.file, True)
    os.environ[_LOCK_VARIABLE] = str(environment.lock.file)
    os.environ[_STARTED_VARIABLE] = str(store.started)
    sys.stdout.flush()
    os.execv(environment.python, [str(environment.python), *arguments])  # noqa: S606 - the path is absolute


def _keep_lock() -> None:
    """Keep the lock of the environment that runs this program, but do not pass it on to kernels and checks."""
    file = os.environ.pop(_LOCK_VARIABLE, "")
    if file.isdigit():
        with suppress(OSError):
            os.set_inheritable(int(file), False)
