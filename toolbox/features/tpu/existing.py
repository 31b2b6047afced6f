"""Finds a TPU by the name that a person gives, without the request that created it.

The name is that of a plain node, or of a queued resource with its nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from toolbox.features.tpu import progress
from toolbox.features.tpu.api import TpuApi
from toolbox.features.tpu.api_errors import TpuApiError
from toolbox.features.tpu.progress import Progress
from toolbox.features.tpu.tpu_states import Location, Node, QueuedResource


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


def _node(api: TpuApi, name: str) -> Node | None:
    try:
        return api.node(name)
    except TpuApiError as error:
        if error.is_absent:
            return None
        raise
