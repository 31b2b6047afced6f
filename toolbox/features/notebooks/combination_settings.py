"""Describes the workload of a combination: the settings and files of the worker, the pod, and the server on a hub."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from toolbox.features.notebooks import runtime_files
from toolbox.features.notebooks import worker as notebook_worker
from toolbox.features.notebooks.machines import Machine
from toolbox.features.notebooks.notebooks_block import NotebooksBlock
from toolbox.features.notebooks.runtime_files import NotebookFile
from toolbox.features.notebooks.runtimes import Runtime
from toolbox.features.notebooks.worker import time_limits
from toolbox.ground import kit

HUB: Final = "jupyterhub"
"""The backend of targets on which kernels run on a Jupyter server."""
_SENT: Final = {
    package.__name__.replace(".", "/"): str(Path(package.__file__ or "").parent) for package in (notebook_worker, kit)
}
"""The folders that are sent to a target: the package that runs the tests there, and what it imports."""
_KUBERNETES: Final = "kubernetes"
_WORKER_BYTES: Final = 250_000_000  # the memory of a pod that is reserved for the worker


@dataclass(frozen=True)
class DescribedRuntime:
    """A runtime with the files that it needs.

    Args:
        requirements: the lines of its requirements; None if no environment is made.
        checks: the files of all checks, by name, also of the checks that `runtime.without_checks` skips.
    """

    name: str
    runtime: Runtime
    requirements: list[str] | None
    notebooks: list[NotebookFile]
    checks: Mapping[str, Path]

    def seconds(self, block: NotebooksBlock, *, uses_server: bool) -> int:
        """Return the longest time that the worker may need if each test is within its time limit.

        Args:
            uses_server: whether the machine is on a hub.
        """
        return math.ceil(
            time_limits.worker_seconds(
                environments=block.environment_timeout,
                checks=[block.check_timeout] * len(self.checks),
                notebooks=[file.entry.timeout for file in self.notebooks if file.entry.manual is None],
                uses_server=uses_server,
            )
        )


def cell(
    block: NotebooksBlock, described: DescribedRuntime, machine: Machine, backends: set[str]
) -> dict[str, dict[str, Any]]:
    """Return the parts of the workload of a combination: settings, files, pod and server.

    Args:
        backends: the names of the backends on which the machine may be.
    """
    runtime = described.runtime
    return {
        "settings": _settings(block, described, machine, backends),
        "files": {**_SENT, **runtime_files.sent(described.notebooks, described.checks)},
        "pod": _pod(runtime, machine) if _KUBERNETES in backends else {},
        "server": {"options": {"image": runtime.image}} if HUB in backends and runtime.image else {},
    }


def _settings(
    block: NotebooksBlock, described: DescribedRuntime, machine: Machine, backends: set[str]
) -> dict[str, Any]:
    """Return the settings of the worker, as `toolbox.features.notebooks.worker.notebook_settings` reads them."""
    runtime = described.runtime
    return {
        "runtime": {
            "name": described.name,
            "kernel": runtime.kernel,
            "requirements": described.requirements,
            "python": runtime.python or block.python,
        },
        "limits": {**_limits(machine, backends), "output_bytes": int(block.output_mb * 1e6)},
        "checks": _checks(block, described, machine),
        "notebooks": [file.settings() for file in described.notebooks],
        "promises": _merged(runtime.promises, machine.own_promises),
        "environments": block.environments,
        "environment_timeout": block.environment_timeout,
        "keep_days": block.keep_days,
        "sample_seconds": block.sample_seconds,
        "uses_server": HUB in backends,
    }


def _checks(block: NotebooksBlock, described: DescribedRuntime, machine: Machine) -> list[dict[str, Any]]:
    """Return the settings of the checks. A check that does not apply is skipped with its reason."""
    reasons = {**machine.without_checks, **described.runtime.without_checks}
    return [
        {"name": path.stem, "file": f"checks/{name}", "timeout": block.check_timeout, "skip": reasons.get(path.stem)}
        for name, path in described.checks.items()
    ]


def _limits(machine: Machine, backends: set[str]) -> dict[str, Any]:
    """Return the limits that the worker sets. On a hub, the profile of the server sets the limits."""
    if HUB in backends:
        return {"cpus": None, "memory_bytes": None}
    memory = None if machine.memory_gb is None else int(machine.memory_gb * 1e9)
    if memory is not None and _KUBERNETES in backends:
        memory = max(memory - _WORKER_BYTES, memory // 2)
    return {"cpus": machine.cpus, "memory_bytes": memory}


def _merged(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    """Return the promises of a runtime and a machine together. A promise of the machine wins, key by key."""
    both = {
        name: _merged(lower[name], value)
        for name, value in upper.items()
        if isinstance(value, Mapping) and isinstance(lower.get(name), Mapping)
    }
    return {**lower, **upper, **both}


def _pod(runtime: Runtime, machine: Machine) -> dict[str, Any]:
    """Return the fields of the pod of a combination."""
    resources: dict[str, Any] = {"gpu": machine.gpus or None}
    if machine.cpus is not None:
        resources |= {"request_cpu": machine.cpus, "limit_cpu": machine.cpus}
    if machine.memory_gb is not None:
        resources |= {"request_memory_gb": machine.memory_gb, "limit_memory_gb": machine.memory_gb}
    return {"resources": resources, **({"image": runtime.image} if runtime.image else {})}
