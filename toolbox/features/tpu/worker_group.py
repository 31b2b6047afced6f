"""Joins the workers of a TPU into a group of machines that runs cells, once all workers are ready."""

from __future__ import annotations

import contextvars
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from toolbox.features.tpu import worker_readiness, workers
from toolbox.features.tpu.ssh_keys import SshKey
from toolbox.features.tpu.tpu_description import Ssh
from toolbox.features.tpu.tpu_states import Node
from toolbox.features.tpu.workers import Worker
from toolbox.ground.extensions.protocols import Backend
from toolbox.ground.model.workloads import TargetContext
from toolbox.targets.host_group import HostGroup, Member
from toolbox.targets.ssh_machine import Login, SshMachine

LOST_SECONDS: Final = 60.0
"""How many seconds a worker may be unreachable until it counts as lost."""
_PROBE_SECONDS: Final = 5  # how long a worker may wait for the end of its startup script before it answers


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """How the workers of a TPU run cells.

    Args:
        selection: the workers to use: `all`, a number, a range or a list (`toolbox.features.tpu.workers.select`).
        python: the Python interpreter for the agent.
        directory: the directory for attempts on the workers.
    """

    selection: str
    python: str
    directory: str
    ssh: Ssh
    key: SshKey


def unready_reason(nodes: Sequence[Node], settings: GroupSettings, mark: Path, threads: Executor) -> str:
    """Ask all workers once whether they are ready, and return why a worker is not ready; empty if all are ready.

    Args:
        mark: the mark of the processes of the target.
        threads: run the requests to the workers.

    Raises:
        StepError: a startup script failed, or a worker has no usable address.
    """
    ask = partial(worker_readiness.unready_reason, mark=mark, wait=_PROBE_SECONDS)
    tasks = [
        threads.submit(contextvars.copy_context().run, ask, worker, worker.login(settings.ssh, settings.key))
        for worker in workers.of_nodes(nodes, settings.ssh)
    ]
    reasons = [task.result() for task in tasks]
    return next(filter(None, reasons), "")


def open_group(context: TargetContext, nodes: Sequence[Node], settings: GroupSettings, threads: Executor) -> HostGroup:
    """Return the group of the selected workers.

    Raises:
        StepError: a worker has no usable address.
    """
    everyone = workers.of_nodes(nodes, settings.ssh)
    chosen = [everyone[index] for index in workers.select(settings.selection, len(everyone))]
    coordinator = nodes[chosen[0].slice].endpoints[_number_in_slice(everyone, chosen[0])].internal
    members = [
        Member(worker.name, partial(_machine, worker.login(settings.ssh, settings.key), settings), variables)
        for worker, variables in zip(chosen, places(chosen, coordinator), strict=True)
    ]
    return HostGroup(context, members, threads, lost_seconds=LOST_SECONDS)


def places(chosen: Sequence[Worker], coordinator: str) -> list[Mapping[str, str]]:
    """Return the environment variables that tell each worker its place among the chosen workers.

    They have the same names as on Kubernetes. A workload on a single worker gets none.

    Args:
        coordinator: the internal address of the first worker.
    """
    if len(chosen) == 1:
        return [{}]
    slices = sorted({worker.slice for worker in chosen})
    found: list[Mapping[str, str]] = []
    for worker in chosen:
        neighbours = _in_slice(chosen, worker)
        place = {
            "TOPGALLANT_HOSTS": str(len(neighbours)),
            "TOPGALLANT_HOST_INDEX": str(neighbours.index(worker)),
            "TOPGALLANT_COORDINATOR": coordinator,
        }
        if len(slices) > 1:
            place["TOPGALLANT_SLICES"] = str(len(slices))
            place["TOPGALLANT_SLICE_INDEX"] = str(slices.index(worker.slice))
        found.append(place)
    return found


def _in_slice(everyone: Iterable[Worker], worker: Worker) -> list[Worker]:
    return [other for other in everyone if other.slice == worker.slice]


def _number_in_slice(everyone: Iterable[Worker], worker: Worker) -> int:
    return _in_slice(everyone, worker).index(worker)


def _machine(login: Login, settings: GroupSettings, context: TargetContext) -> Backend:
    return SshMachine(context, login, settings.python, settings.directory)
