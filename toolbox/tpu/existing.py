"""Finds a TPU by the name that a person gives, without the request that created it.

The name is that of a plain node, or of a queued resource with its nodes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from toolbox.model import backoff
from toolbox.model.resources import Owner
from toolbox.system import cancellation
from toolbox.tpu import deletion, progress
from toolbox.tpu.api import TpuApi
from toolbox.tpu.api_errors import TpuApiError
from toolbox.tpu.progress import Progress
from toolbox.tpu.tpu_states import Location, Node, QueuedResource

_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 15.0


@dataclass(frozen=True, slots=True)
class ExistingTpu:
    """A plain node, or a queued resource with its nodes.

    Args:
        queued: the queued resource; None for a plain node.
        nodes: the nodes in the order of their slices; None for each node of the queued resource that does not exist.
    """

    queued: QueuedResource | None
    nodes: tuple[Node | None, ...]

    @property
    def full_name(self) -> str:
        """The full name of the queued resource, or of the plain node."""
        if self.queued is not None:
            return self.queued.name
        assert self.nodes[0] is not None, "a TPU without a queued resource is an existing node"
        return self.nodes[0].name

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of the nodes."""
        if self.queued is not None:
            return self.queued.labels
        return self.nodes[0].labels if self.nodes[0] is not None else {}

    def progress(self) -> Progress:
        """Return the progress of the TPU.

        Raises:
            StepError: the TPU does not come up any more.
        """
        if self.queued is not None:
            return progress.of_queued_resource(self.queued, self.nodes)
        return progress.of_nodes([node for node in self.nodes if node is not None])


def find(api: TpuApi, location: Location, name: str) -> ExistingTpu:
    """Return the TPU with this name.

    Raises:
        TpuApiError: the request failed; `is_absent` if there is no such TPU.
    """
    node = _node(api, location.node(name))
    if node is not None and not node.queued_resource:
        return ExistingTpu(None, (node,))
    queued = api.queued_resource(location.queued_resource(name) if node is None else node.queued_resource)
    nodes = [node if node is not None and node.id == each else _node(api, location.node(each)) for each in queued.nodes]
    return ExistingTpu(queued, tuple(nodes))


def wait_up(
    api: TpuApi, location: Location, name: str, *, timeout: float, report: Callable[[str], None]
) -> tuple[Node, ...]:
    """Wait until all nodes of a TPU run and are healthy, and return them in the order of their slices.

    Args:
        report: called with the state whenever it changes.

    Raises:
        StepError: the TPU does not come up, or not in time.
    """
    deadline = time.monotonic() + timeout
    tries, latest = 0, ""
    while True:
        state = find(api, location, name).progress()
        if state.is_up:
            return state.nodes
        if state.message != latest:
            report(state.message)
            latest, tries = state.message, 0
        left = deadline - time.monotonic()
        if left <= 0:
            raise progress.timeout_error(state, timeout)
        pause = backoff.pause(tries, first=_FIRST_PAUSE, most=_LONGEST_PAUSE)
        cancellation.current().sleep(min(left, pause))
        tries += 1


def delete(api: TpuApi, tpu: ExistingTpu, owner: Owner, *, timeout: float = deletion.TIMEOUT) -> None:
    """Delete a TPU, and return when it no longer exists.

    Raises:
        ForeignObject: the TPU belongs to another owner.
        StepError: the TPU may still exist.
    """
    deletion.delete(api, tpu.full_name, owner, timeout=timeout)


def _node(api: TpuApi, name: str) -> Node | None:
    try:
        return api.node(name)
    except TpuApiError as error:
        if error.is_absent:
            return None
        raise
