"""Starts single-user servers by forking a process that has imported the modules of a server.

The servers run the code of the program `jupyterhub-singleuser`. The imports take two seconds of CPU time, which a fork
saves. `multiprocessing` starts the process that is forked, when the hub starts its first Jupyter server.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final

_MODULES: Final = (
    "jupyterhub.singleuser",
    "jupyter_server.services.api.handlers",
    "jupyter_server.services.contents.handlers",
    "jupyter_server.services.kernels.websocket",
    "jupyter_server.services.sessions.handlers",
    "jupyter_server_terminals.app",
    "nbconvert.exporters",
)


def start(
    arguments: Sequence[str], variables: Mapping[str, str], directory: str, processors: Collection[int]
) -> BaseProcess:
    """Start a single-user server as a new process."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, *_MODULES])
    values = (list(arguments), dict(variables), directory, set(processors))
    process = context.Process(target=_serve, args=values, name="jupyterhub-singleuser")
    process.start()
    return process


def _serve(arguments: list[str], variables: dict[str, str], directory: str, processors: set[int]) -> None:
    os.setsid()
    Path(directory).mkdir(parents=True, exist_ok=True)
    os.chdir(directory)
    os.sched_setaffinity(0, processors)
    os.environ.clear()
    os.environ.update(variables)
    sys.argv = ["jupyterhub-singleuser", *arguments]
    from jupyterhub.singleuser import main

    main()
