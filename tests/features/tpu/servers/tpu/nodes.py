"""Nodes: https://cloud.google.com/tpu/docs/reference/rest/v2/projects.locations.nodes.

The requests about nodes, and the changes of nodes without a request: preemption, maintenance and repair.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from google.cloud.tpu_v2 import types
from google.longrunning.operations_pb2 import Operation
from google.protobuf.empty_pb2 import Empty

from tests.features.tpu.servers.tpu import refusals, validation
from tests.features.tpu.servers.tpu.catalog import CATALOG, Accelerator
from tests.features.tpu.servers.tpu.cloud import ApiVersion, Cloud, Health, NodeRecord, NodeState
from tests.features.tpu.servers.tpu.faults import Fault
from tests.features.tpu.servers.tpu.operations import Operations

_UPDATABLE: Final = ("description", "tags", "labels", "metadata", "network_config.enable_external_ips")
_SCOPES: Final = (
    "https://www.googleapis.com/auth/devstorage.read_write",
    "https://www.googleapis.com/auth/logging.write",
    "https://www.googleapis.com/auth/service.management",
    "https://www.googleapis.com/auth/servicecontrol",
    "https://www.googleapis.com/auth/cloud-platform",
    "https://www.googleapis.com/auth/pubsub",
)


class Nodes:
    """All nodes, by their names.

    Args:
        on_loss: called with a node of a queued resource that is being deleted or was preempted, and whether a user
            deleted it.
        on_release: called when capacity may have become free.
    """

    def __init__(self, cloud: Cloud, operations: Operations) -> None:
        self.all: dict[str, types.Node] = {}
        self.on_loss: Callable[[types.Node, bool], None] = lambda *_: None
        self.on_release: Callable[[], None] = lambda: None
        self._cloud = cloud
        self._operations = operations
        self._records: dict[int, NodeRecord] = {}

    # Requests

    def create(self, request: types.CreateNodeRequest, fault: Fault) -> Operation:
        """Begin to create a node."""
        parent = validation.parent(request.parent)
        validation.check_node_id(request.node_id)
        name = f"{parent}/nodes/{request.node_id}"
        accelerator = self.check_new(name, request.node)
        scheduling = request.node.scheduling_config
        is_spot = bool(scheduling.spot or scheduling.preemptible)
        self._cloud.quotas.take(name, parent, [accelerator], is_spot=is_spot)
        operation = self._operations.begin(name, "create")
        has_room = self._cloud.capacity.grant([name], parent.zone, [accelerator.name])
        stock_out = None if has_room else refusals.stock_out(parent.zone, is_reserved=scheduling.reserved)
        error = fault.operation_error() or stock_out
        node = self.add(name, request.node, creator="CreateNode")

        def finish() -> None:
            if error is None and self.make_ready(node):
                self._operations.finish(operation, node)
            elif error is not None and self._is_in(node, NodeState.CREATING):
                self.remove(node)
                self._operations.finish(operation, error)
            else:
                self._operations.finish(operation, refusals.unsupported_state("update", node.state.name).status())

        self._cloud.clock.call_later(fault.duration(self._cloud.timings.create), finish)
        return self._operations.get(operation)

    def get(self, request: types.GetNodeRequest) -> types.Node:
        """Return a node."""
        return validation.find(self.all, request.name)

    def list(self, request: types.ListNodesRequest) -> types.ListNodesResponse:
        """Return a page of the nodes of a zone, or of all zones."""
        nodes, rest = self._cloud.page(request, self.all)
        return types.ListNodesResponse(nodes=nodes, **rest)

    def delete(self, request: types.DeleteNodeRequest, fault: Fault) -> Operation:
        """Begin to delete a node."""
        node = validation.find(self.all, request.name)
        if node.state == NodeState.DELETING:
            raise refusals.unsupported_state("delete", node.state.name)

        def act() -> Empty:
            self.remove(node)
            return Empty()

        operation = self._begin(node, "delete", fault, state=NodeState.DELETING, act=act)
        if fault.operation_error() is None:
            self.on_loss(node, True)
        return operation

    def stop(self, request: types.StopNodeRequest, fault: Fault) -> Operation:
        """Begin to stop a node with one VM."""
        node = self._of_one_vm(request.name, "stop", NodeState.READY)

        def act() -> types.Node:
            self._cloud.machines.stop(node.name)
            self.set_state(node, NodeState.STOPPED)
            return node

        return self._begin(node, "stop", fault, state=NodeState.STOPPING, act=act)

    def start(self, request: types.StartNodeRequest, fault: Fault) -> Operation:
        """Begin to start a stopped node."""
        node = self._of_one_vm(request.name, "start", NodeState.STOPPED)

        def act() -> types.Node:
            self._cloud.machines.restart(node)
            self.set_state(node, NodeState.READY)
            return node

        return self._begin(node, "start", fault, state=NodeState.STARTING, act=act)

    def update(self, request: types.UpdateNodeRequest, fault: Fault) -> Operation:
        """Begin to change the fields of a node that its mask names."""
        node = validation.find(self.all, request.node.name)
        if node.state not in (NodeState.READY, NodeState.STOPPED):
            raise refusals.unsupported_state("update", node.state.name)
        paths = list(request.update_mask.paths)
        if not paths or not set(paths) <= set(_UPDATABLE):
            raise refusals.invalid_field("update_mask", f"{paths} are not all in {list(_UPDATABLE)}")
        validation.check_update(request.node)

        def act() -> types.Node:
            for path in paths:
                if path == "network_config.enable_external_ips":
                    node.network_config.enable_external_ips = request.node.network_config.enable_external_ips
                else:
                    setattr(node, path, getattr(request.node, path))
            self._cloud.machines.update(node)
            return node

        return self._begin(node, "update", fault, state=node.state, act=act)

    def guest_attributes(self, request: types.GetGuestAttributesRequest) -> types.GetGuestAttributesResponse:
        """Return the guest attributes of workers, for example their SSH host keys."""
        workers = self._cloud.machines.guest_attributes(validation.find(self.all, request.name).name)
        chosen = [int(worker) for worker in request.worker_ids if worker] or range(len(workers))
        namespace, _, key = request.query_path.strip("/").partition("/")

        def entries(worker: int) -> list[types.GuestAttributesEntry]:
            return [
                types.GuestAttributesEntry(namespace=one, key=other, value=value)
                for (one, other), value in workers[worker].items()
                if namespace in ("", one) and key in ("", other)
            ]

        found = [types.GuestAttributesValue(items=entries(worker)) for worker in chosen if worker < len(workers)]
        return types.GetGuestAttributesResponse(
            guest_attributes=[types.GuestAttributes(query_path=request.query_path, query_value=one) for one in found]
        )

    def _of_one_vm(self, name: str, action: str, state: Any) -> types.Node:
        """Return a node that can be stopped or started: it has one VM, no queued resource, and a state."""
        node = validation.find(self.all, name)
        if CATALOG[node.accelerator_type].workers > 1 or node.queued_resource:
            raise refusals.bad_request(f"{action} is not supported for TPU Pods and queued resources")
        if node.state != state:
            raise refusals.unsupported_state(action, node.state.name)
        return node

    def _begin(
        self, node: types.Node, verb: str, fault: Fault, *, state: Any, act: Callable[[], types.Node | Empty]
    ) -> Operation:
        """Set the state of a node, and act after the usual time, unless the state has changed meanwhile."""
        operation = self._operations.begin(node.name, verb)
        before, error = node.state, fault.operation_error()
        self.set_state(node, state)

        def finish() -> None:
            with self._cloud.changed:
                if state == NodeState.DELETING and not self._exists(node):
                    result = Empty()  # its queued resource was faster
                elif not self._is_in(node, state):
                    result = refusals.unsupported_state(verb, node.state.name).status()
                elif error is not None:
                    self.set_state(node, before)
                    result = error
                else:
                    result = act()
                self._operations.finish(operation, result)

        timings = self._cloud.timings
        usual = timings.delete if state == NodeState.DELETING else timings.change
        self._cloud.clock.call_later(fault.duration(usual), finish)
        return self._operations.get(operation)

    # States

    def check_new(self, name: str, node: types.Node) -> Accelerator:
        """Check that a node can be created, and return its accelerator type."""
        accelerator = self._cloud.accelerator(node, validation.zone_of(name))
        validation.check_new_node(node)
        if name in self.all:
            raise refusals.already_exists(name)
        return accelerator

    def add(self, name: str, wanted: types.Node, *, creator: str, is_multislice: bool = False) -> types.Node:
        """Add a node in the state CREATING."""
        accelerator = self._cloud.accelerator(wanted, validation.zone_of(name))
        node = types.Node(wanted)
        node.name = name
        node.id = secrets.randbits(62)
        node.create_time = self._cloud.timestamp()
        node.accelerator_type = accelerator.name
        node.accelerator_config = accelerator.config
        node.api_version = ApiVersion.V2
        node.multislice_node = is_multislice
        _fill_defaults(node)
        self.all[name] = node
        record = NodeRecord(name, accelerator.name, creator, dict(node.labels), created=self._cloud.clock.now())
        self._records[node.id] = record
        self._cloud.history.append(record)
        self.set_state(node, NodeState.CREATING)
        return node

    def make_ready(self, node: types.Node) -> bool:
        """Start the VMs of a node in the state CREATING, and return whether it has become READY."""
        if not self._is_in(node, NodeState.CREATING):
            return False
        endpoints = self._cloud.machines.start(node, self._cloud.timings.boot)
        with self._cloud.changed:
            if not self._is_in(node, NodeState.CREATING):
                return False
            node.network_endpoints = list(endpoints)
            node.health = Health.HEALTHY
            self.set_state(node, NodeState.READY)
            return True

    def remove(self, node: types.Node) -> None:
        """Delete a node and its VMs."""
        with self._cloud.changed:
            if not self._exists(node):
                return
            self._cloud.machines.forget(node.name)
            self._cloud.capacity.release([node.name])
            self._cloud.quotas.release(node.name)
            del self.all[node.name]
            self._records[node.id].deleted = self._cloud.clock.now()
            self._cloud.changed.notify_all()
            self.on_release()

    def set_state(self, node: types.Node, state: Any) -> None:
        """Change the state of a node."""
        with self._cloud.changed:
            node.state = state
            states = self._records[node.id].states
            if states[-1:] != [state.name]:
                states.append(state.name)
            self._cloud.changed.notify_all()

    def set_health(self, node: types.Node, health: Any, description: str = "") -> None:
        """Change the health of a node."""
        with self._cloud.changed:
            node.health = health
            node.health_description = description
            self._cloud.changed.notify_all()

    def _exists(self, node: types.Node) -> bool:
        """Say whether a node exists, and not another one with its name."""
        return self.all.get(node.name) is node

    def _is_in(self, node: types.Node, state: Any) -> bool:
        """Say whether a node exists and has a state."""
        return self._exists(node) and bool(node.state == state)

    # What the service does without a request

    def preempt(self, node: types.Node) -> None:
        """Take the VMs of a node away. The node stays in the list as PREEMPTED, until it is deleted."""
        self._cloud.machines.stop(node.name)
        self._cloud.capacity.release([node.name])
        self.set_state(node, NodeState.PREEMPTED)
        self.on_loss(node, False)
        self.on_release()

    def maintain(self, node: types.Node, seconds: float | None) -> None:
        """Stop the VMs of a node for maintenance; None does not start them again."""
        description = "The TPU is under maintenance and will resume running once it is rescheduled."
        self._suspend(node, Health.UNHEALTHY_MAINTENANCE, description, NodeState.READY, seconds)

    def repair(self, node: types.Node, seconds: float | None) -> None:
        """Stop the VMs of a node for a repair; None does not start them again."""
        description = "The TPU is unresponsive and is being repaired."
        self._suspend(node, Health.TIMEOUT, description, NodeState.REPAIRING, seconds)

    def _suspend(self, node: types.Node, health: Any, description: str, state: Any, seconds: float | None) -> None:
        self._cloud.machines.stop(node.name)
        self.set_health(node, health, description)
        self.set_state(node, state)
        if seconds is not None:
            self._cloud.clock.call_later(seconds, partial(self._return, node, state))

    def _return(self, node: types.Node, state: Any) -> None:
        """Start the VMs of a node again, if the node still has a state."""
        if self._is_in(node, state):
            self._cloud.machines.restart(node)
            self.set_health(node, Health.HEALTHY)
            self.set_state(node, NodeState.READY)


def _fill_defaults(node: types.Node) -> None:
    """Set the fields that the service sets where a request leaves them out."""
    parent = validation.parent(node.name)
    network, region = node.network_config, parent.zone.rpartition("-")[0]
    if not node.network_configs:
        network.network = network.network or f"projects/{parent.project}/global/networks/default"
        network.subnetwork = network.subnetwork or f"projects/{parent.project}/regions/{region}/subnetworks/default"
    if not node.service_account.email:
        node.service_account.email = (
            f"{validation.project_number(parent.project)}-compute@developer.gserviceaccount.com"
        )
    if not node.service_account.scope:
        node.service_account.scope = list(_SCOPES)
