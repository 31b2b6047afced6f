"""The state of nodes and queued resources, as frozen data without the message types of the API.

`phase` reduces the many states of the API to what a caller does next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

from toolbox.ground.model.prices import Tier


class Phase(StrEnum):
    """What a TPU is doing.

    WAITING: the request waits for capacity.
    CREATING: the nodes are being created, or are not healthy yet.
    UP: the nodes run and are healthy. Their workers may still execute the startup script.
    LOST: the nodes were taken away, or are broken, and don't come back by themselves.
    FAILED: the request failed.
    DELETING: the TPU is being deleted.
    """

    WAITING = "waiting"
    CREATING = "creating"
    UP = "up"
    LOST = "lost"
    FAILED = "failed"
    DELETING = "deleting"


HEALTHY: Final = frozenset({"HEALTHY", "HEALTH_UNSPECIFIED"})
"""The values of `Node.health` with which a node can be used. A node that is not checked has an unspecified health."""
_NODE_PHASES: Final[Mapping[str, Phase]] = {
    "STATE_UNSPECIFIED": Phase.CREATING,
    "UNKNOWN": Phase.CREATING,
    "CREATING": Phase.CREATING,
    "STARTING": Phase.CREATING,
    "UNHIDING": Phase.CREATING,
    "READY": Phase.UP,
    "DELETING": Phase.DELETING,
    **dict.fromkeys(("RESTARTING", "REIMAGING", "REPAIRING", "STOPPING", "STOPPED", "HIDING", "HIDDEN"), Phase.LOST),
    **dict.fromkeys(("PREEMPTED", "TERMINATED"), Phase.LOST),
}
_QUEUED_PHASES: Final[Mapping[str, Phase]] = {
    "STATE_UNSPECIFIED": Phase.WAITING,
    "CREATING": Phase.WAITING,
    "ACCEPTED": Phase.WAITING,
    "WAITING_FOR_RESOURCES": Phase.WAITING,
    "PROVISIONING": Phase.CREATING,
    "ACTIVE": Phase.UP,
    "FAILED": Phase.FAILED,
    "SUSPENDING": Phase.LOST,
    "SUSPENDED": Phase.LOST,
    "DELETING": Phase.DELETING,
}
_WORDS: Final[Mapping[str, str]] = {
    "PREEMPTED": "was preempted",
    "TERMINATED": "was terminated",
    "REPAIRING": "is being repaired (maintenance)",
    "RESTARTING": "is being restarted",
    "REIMAGING": "is being reimaged",
    "STOPPING": "is being stopped",
    "STOPPED": "was stopped",
}


@dataclass(frozen=True, slots=True)
class Location:
    """A zone of a Google Cloud project."""

    project: str
    zone: str

    def __str__(self) -> str:
        """Return the name of the location in the API."""
        return f"projects/{self.project}/locations/{self.zone}"

    def node(self, name: str) -> str:
        """Return the full name of a node."""
        return f"{self}/nodes/{name}"

    def queued_resource(self, name: str) -> str:
        """Return the full name of a queued resource."""
        return f"{self}/queuedResources/{name}"


def is_queued_resource(name: str) -> bool:
    """Return whether a full name is that of a queued resource. Otherwise, the name is that of a node."""
    return name.split("/")[-2] == "queuedResources"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The addresses of one worker.

    Args:
        external: the external address; empty if the worker has none.
    """

    internal: str
    external: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """A TPU node.

    Args:
        name: the full name, `projects/.../nodes/NAME`.
        state: the name of the state in the API, such as `READY`.
        health: the name of the health in the API, such as `HEALTHY`.
        health_description: why the node is not healthy.
        endpoints: the workers, in the order of their numbers.
        created: when the node was created; None if unknown.
        queued_resource: the full name of the queued resource that created the node; empty if none did.
        symptoms: what the API reports about the workers, such as `OUT_OF_MEMORY on worker 0`.
    """

    name: str
    state: str
    health: str = "HEALTH_UNSPECIFIED"
    health_description: str = ""
    accelerator_type: str = ""
    runtime_version: str = ""
    endpoints: tuple[Endpoint, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    created: datetime | None = None
    queued_resource: str = ""
    tier: Tier = Tier.ON_DEMAND
    symptoms: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The last part of the name."""
        return self.name.rpartition("/")[2]

    @property
    def phase(self) -> Phase:
        """What the node is doing. A state that the node does not leave by itself, or not soon, is `LOST`.

        A state that this version does not know counts as `CREATING`, which ends with the time limit of the caller.
        """
        phase = _NODE_PHASES.get(self.state, Phase.CREATING)
        return Phase.CREATING if phase is Phase.UP and self.health not in HEALTHY else phase

    @property
    def message(self) -> str:
        """The state and its reason, for people."""
        if self.state in _WORDS:
            text = _WORDS[self.state]
        elif self.state == "READY" and self.health not in HEALTHY:
            text = f"is READY but not healthy ({self.health})"
        else:
            text = f"is {self.state}"
        reasons = [*([self.health_description] if self.health_description else []), *self.symptoms]
        return f"the node {self.id} {text}" + (f": {'; '.join(reasons)}" if reasons else "")


@dataclass(frozen=True, slots=True)
class Fault:
    """An error that the API reports as data: the failure of an operation or of a queued resource.

    Args:
        code: the name of the gRPC status, such as `RESOURCE_EXHAUSTED`.
        reason: the reason in the `ErrorInfo` of Google Cloud, such as `SERVICE_DISABLED`; empty if there is none.
    """

    code: str
    message: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class QueuedResource:
    """A request for one or more nodes that waits in the queue, or that created its nodes.

    Args:
        name: the full name, `projects/.../queuedResources/NAME`.
        state: the name of the state in the API, such as `WAITING_FOR_RESOURCES`.
        fault: why the request failed; None if the API does not tell, or if the request did not fail.
        nodes: the names of its nodes, without the location.
        labels: the labels of its nodes. A queued resource has no labels of its own.
        is_by_service: whether Google Cloud, and not a user, caused the state.
    """

    name: str
    state: str
    fault: Fault | None = None
    nodes: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    accelerator_type: str = ""
    runtime_version: str = ""
    created: datetime | None = None
    tier: Tier = Tier.ON_DEMAND
    is_by_service: bool = False

    @property
    def id(self) -> str:
        """The last part of the name."""
        return self.name.rpartition("/")[2]

    @property
    def phase(self) -> Phase:
        """What the queued resource is doing. A state that this version does not know counts as waiting."""
        return _QUEUED_PHASES.get(self.state, Phase.WAITING)

    @property
    def message(self) -> str:
        """The state and its reason, for people."""
        initiator = " by Google Cloud" if self.phase is Phase.LOST and self.is_by_service else ""
        reason = f": {self.fault.message}" if self.fault is not None else ""
        return f"the queued resource {self.id} is {self.state}{initiator}{reason}"


@dataclass(frozen=True, slots=True)
class Operation:
    """A long-running operation.

    Args:
        target: the full name of the object that the operation changes; empty if unknown.
        detail: what the operation is doing, if the API tells.
    """

    name: str
    is_done: bool = False
    fault: Fault | None = None
    target: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ZoneView:
    """All nodes and queued resources of a location at one moment, by their full names."""

    nodes: Mapping[str, Node]
    queued_resources: Mapping[str, QueuedResource]

    @classmethod
    def of(cls, nodes: Sequence[Node], queued_resources: Sequence[QueuedResource]) -> ZoneView:
        """Return the view of these objects."""
        return cls({node.name: node for node in nodes}, {each.name: each for each in queued_resources})

    def find(self, name: str) -> Node | QueuedResource | None:
        """Return the node or the queued resource with a full name; None if there is no such object."""
        return self.nodes.get(name) or self.queued_resources.get(name)
