"""The nodes that exist, their states and VMs, and what the service does to them without a request."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, Protocol

from google.cloud.tpu_v2 import types

from tests.servers.tpu import checks, refusals
from tests.servers.tpu.catalog import Accelerator
from tests.servers.tpu.cloud import Cloud, NodeRecord
from tests.servers.tpu.enums import ApiVersion, Health, NodeState
from tests.servers.tpu.names import Parent, parent_of

_SCOPES: Final = (
    "https://www.googleapis.com/auth/devstorage.read_write",
    "https://www.googleapis.com/auth/logging.write",
    "https://www.googleapis.com/auth/service.management",
    "https://www.googleapis.com/auth/servicecontrol",
    "https://www.googleapis.com/auth/cloud-platform",
    "https://www.googleapis.com/auth/pubsub",
)


class Owner(Protocol):
    """The queued resources, which follow what happens to their nodes."""

    def node_lost(self, node: types.Node, *, by_user: bool) -> None:
        """Take note that a node is being deleted, or was preempted."""

    def serve(self) -> None:
        """Take note that capacity may have become free."""


class NodeStore:
    """All nodes, by their names."""

    def __init__(self, cloud: Cloud) -> None:
        self.owner: Owner | None = None
        self._cloud = cloud
        self._nodes: dict[str, types.Node] = {}
        self._records: dict[int, NodeRecord] = {}

    def all(self) -> Mapping[str, types.Node]:
        """Return all nodes by their names."""
        return self._nodes

    def find(self, name: str) -> types.Node:
        """Return a node.

        Raises:
            ApiError: it does not exist.
        """
        checks.parent(name)
        if name not in self._nodes:
            raise refusals.not_found(name)
        return self._nodes[name]

    def check_new(self, name: str, node: types.Node) -> Accelerator:
        """Check that a node can be created, and return its accelerator type."""
        accelerator = self._cloud.accelerator(node, checks.parent(name).zone)
        checks.node(node)
        if name in self._nodes:
            raise refusals.already_exists(name)
        return accelerator

    def add(self, name: str, wanted: types.Node, *, creator: str, is_multislice: bool = False) -> types.Node:
        """Add a node in the state CREATING."""
        parent = checks.parent(name)
        accelerator = self._cloud.accelerator(wanted, parent.zone)
        node = types.Node(wanted)
        node.name = name
        node.id = secrets.randbits(62)
        node.create_time = self._cloud.timestamp()
        node.accelerator_type = accelerator.name
        node.accelerator_config = accelerator.config
        node.api_version = ApiVersion.V2
        node.multislice_node = is_multislice
        node.queued_resource = creator if creator.startswith("projects/") else ""
        _fill_defaults(node, parent)
        self._nodes[name] = node
        self._records[node.id] = NodeRecord(
            name, accelerator.name, creator, dict(node.labels), created=self._cloud.clock.now()
        )
        self._cloud.history.append(self._records[node.id])
        self.set_state(node, NodeState.CREATING)
        return node

    def make_ready(self, node: types.Node) -> bool:
        """Start the VMs of a node in the state CREATING, and return whether it has become READY."""
        if not self.is_present(node, NodeState.CREATING):
            return False
        endpoints = self._cloud.machines.start(node, self._cloud.timings.boot)
        with self._cloud.changed:
            if not self.is_present(node, NodeState.CREATING):
                return False
            node.network_endpoints = list(endpoints)
            node.health = Health.HEALTHY
            self.set_state(node, NodeState.READY)
            return True

    def remove(self, node: types.Node) -> None:
        """Delete a node and its VMs."""
        with self._cloud.changed:
            if not self.exists(node):
                return
            self._cloud.machines.forget(node.name)
            self._cloud.capacity.release([node.name])
            self._cloud.quotas.release(node.name)
            del self._nodes[node.name]
            self._records[node.id].deleted = self._cloud.clock.now()
            self._cloud.changed.notify_all()
            self._serve()

    def exists(self, node: types.Node) -> bool:
        """Say whether a node exists, and not another one with its name."""
        return self._nodes.get(node.name) is node

    def is_present(self, node: types.Node, state: Any) -> bool:
        """Say whether a node exists and has a state."""
        return self.exists(node) and bool(node.state == state)

    def set_state(self, node: types.Node, state: Any) -> None:
        """Change the state of a node."""
        with self._cloud.changed:
            node.state = state
            states = self._records[node.id].states
            if states[-1:] != [state.name]:
                states.append(state.name)
            self._cloud.changed.notify_all()

    def lost(self, node: types.Node, *, by_user: bool) -> None:
        """Tell the queued resource of a node that the node goes away."""
        if self.owner is not None and node.queued_resource:
            self.owner.node_lost(node, by_user=by_user)

    # What the service does without a request

    def preempt(self, node: types.Node) -> None:
        """Take the VMs of a node away. The node stays in the list as PREEMPTED, until it is deleted."""
        self._cloud.machines.stop(node.name)
        self._cloud.capacity.release([node.name])
        self.set_state(node, NodeState.PREEMPTED)
        self.lost(node, by_user=False)
        self._serve()

    def maintain(self, node: types.Node, seconds: float | None) -> None:
        """Stop the VMs of a node for maintenance; None does not start them again."""
        description = "The TPU is under maintenance and will resume running once it is rescheduled."
        self._cloud.machines.stop(node.name)
        self.set_health(node, Health.UNHEALTHY_MAINTENANCE, description)
        if seconds is not None:
            self._cloud.clock.call_later(seconds, partial(self._return, node, NodeState.READY))

    def repair(self, node: types.Node, seconds: float | None) -> None:
        """Stop the VMs of a node for a repair; None does not start them again."""
        self._cloud.machines.stop(node.name)
        self.set_health(node, Health.TIMEOUT, "The TPU is unresponsive and is being repaired.")
        self.set_state(node, NodeState.REPAIRING)
        if seconds is not None:
            self._cloud.clock.call_later(seconds, partial(self._return, node, NodeState.REPAIRING))

    def set_health(self, node: types.Node, health: Any, description: str = "") -> None:
        """Change the health of a node."""
        with self._cloud.changed:
            node.health = health
            node.health_description = description
            self._cloud.changed.notify_all()

    def _serve(self) -> None:
        if self.owner is not None:
            self.owner.serve()

    def _return(self, node: types.Node, state: Any) -> None:
        """Start the VMs of a node again, if the node still has a state."""
        if self.is_present(node, state):
            self._cloud.machines.restart(node)
            self.set_health(node, Health.HEALTHY)
            self.set_state(node, NodeState.READY)


def parent_of_node(node: types.Node) -> Parent:
    """Return the project and zone of a node."""
    found = parent_of(node.name)
    assert found is not None
    return found


def _fill_defaults(node: types.Node, parent: Parent) -> None:
    """Set the fields that the service sets where a request leaves them out."""
    region = parent.zone.rpartition("-")[0]
    if not node.network_configs:
        node.network_config.network = (
            node.network_config.network or f"projects/{parent.project}/global/networks/default"
        )
        node.network_config.subnetwork = (
            node.network_config.subnetwork or f"projects/{parent.project}/regions/{region}/subnetworks/default"
        )
    if not node.service_account.email:
        node.service_account.email = "123456789012-compute@developer.gserviceaccount.com"
    if not node.service_account.scope:
        node.service_account.scope = list(_SCOPES)
