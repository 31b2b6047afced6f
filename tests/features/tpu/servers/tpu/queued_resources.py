"""Queued resources: https://cloud.google.com/tpu/docs/queued-resources.

CREATING, ACCEPTED and WAITING_FOR_RESOURCES precede PROVISIONING, when there is capacity for all nodes of the request;
ACTIVE follows when all nodes are READY. If one node is deleted or preempted, the service deletes the others too:
SUSPENDING, then SUSPENDED. A request that still waits at the end of its start constraint is FAILED.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from google.cloud.tpu_v2 import types
from google.longrunning.operations_pb2 import Operation
from google.protobuf.empty_pb2 import Empty
from google.rpc.status_pb2 import Status

from tests.features.tpu.servers.tpu import refusals, validation
from tests.features.tpu.servers.tpu.cloud import Cloud, Initiator, NodeState, QueuedState
from tests.features.tpu.servers.tpu.faults import Fault
from tests.features.tpu.servers.tpu.nodes import Nodes
from tests.features.tpu.servers.tpu.operations import Operations
from tests.features.tpu.servers.tpu.refusals import ApiError

_PROVISION: Final = "ProvisionQueuedResource"
_WAITING: Final = (QueuedState.ACCEPTED, QueuedState.WAITING_FOR_RESOURCES)
_WITH_NODES: Final = (QueuedState.PROVISIONING, QueuedState.ACTIVE)
_DELETABLE: Final = (*_WAITING, QueuedState.FAILED, QueuedState.SUSPENDED)


class QueuedResources:
    """All queued resources, by their names."""

    def __init__(self, cloud: Cloud, nodes: Nodes, operations: Operations) -> None:
        self.all: dict[str, types.QueuedResource] = {}
        self._cloud = cloud
        self._nodes = nodes
        self._operations = operations
        self._requests: dict[str, str] = {}  # operations by the id of the request
        nodes.on_loss, nodes.on_release = self._node_lost, self.serve

    # Requests

    def create(self, request: types.CreateQueuedResourceRequest, fault: Fault) -> Operation:
        """Begin to create a queued resource."""
        parent = validation.parent(request.parent)
        if request.request_id in self._requests:
            return self._operations.get(self._requests[request.request_id])
        validation.check_queued_resource_id(request.queued_resource_id)
        name = f"{parent}/queuedResources/{request.queued_resource_id}"
        if name in self.all:
            raise refusals.already_exists(name)
        resource = types.QueuedResource(request.queued_resource)
        resource.name = name
        self._check(resource, parent)
        _refer_by_number(resource)
        resource.create_time = self._cloud.timestamp()
        operation = self._operations.begin(name, "create")
        if request.request_id:
            self._requests[request.request_id] = operation
        self.all[name] = resource
        error = fault.operation_error()
        self._set_state(resource, QueuedState.CREATING)

        def finish() -> None:
            if error is not None:
                self._remove(resource)
            else:
                self._begin_waiting(resource)
            self._operations.finish(operation, error or resource)

        self._later(fault.duration(self._cloud.timings.accept), resource, QueuedState.CREATING, finish)
        return self._operations.get(operation)

    def get(self, request: types.GetQueuedResourceRequest) -> types.QueuedResource:
        """Return a queued resource."""
        return validation.find(self.all, request.name)

    def list(self, request: types.ListQueuedResourcesRequest) -> types.ListQueuedResourcesResponse:
        """Return a page of the queued resources of a zone, or of all zones."""
        queued, rest = self._cloud.page(request, self.all)
        return types.ListQueuedResourcesResponse(queued_resources=queued, **rest)

    def delete(self, request: types.DeleteQueuedResourceRequest, fault: Fault) -> Operation:
        """Begin to delete a queued resource, with `force` also its nodes."""
        resource = validation.find(self.all, request.name)
        state = resource.state.state
        if state == QueuedState.DELETING or (state not in _DELETABLE and not request.force):
            raise refusals.failed_precondition(
                f"Queued resource {resource.name} is in state {state.name} and cannot be deleted. "
                "Delete its nodes first, or use force."
            )
        operation = self._operations.begin(resource.name, "delete")
        error = fault.operation_error()
        self._set_state(resource, QueuedState.DELETING)
        for node in self._nodes_of(resource):
            self._nodes.set_state(node, NodeState.DELETING)

        def finish() -> None:
            if error is None:
                self._remove_nodes(resource)
                self._remove(resource)
            else:
                self._set_state(resource, state)
            self._operations.finish(operation, error or Empty())

        self._later(fault.duration(self._cloud.timings.delete), resource, QueuedState.DELETING, finish)
        return self._operations.get(operation)

    def reset(self, request: types.ResetQueuedResourceRequest, fault: Fault) -> Operation:
        """Begin to make the nodes of an active queued resource again."""
        resource = validation.find(self.all, request.name)
        state = resource.state.state
        if state != QueuedState.ACTIVE:
            raise refusals.failed_precondition(f"reset is not supported while in state {state.name}")
        operation = self._operations.begin(resource.name, "reset")
        error = fault.operation_error()

        def finish() -> None:
            if error is None:
                self._remove_nodes(resource)
                self._begin_waiting(resource)
            self._operations.finish(operation, error or resource)

        self._later(fault.duration(self._cloud.timings.change), resource, QueuedState.ACTIVE, finish)
        return self._operations.get(operation)

    # Course

    def serve(self) -> None:
        """Give capacity to the queued resources that wait, in the order of their creation."""
        for resource in list(self.all.values()):
            if resource.state.state == QueuedState.WAITING_FOR_RESOURCES:
                self._provision(resource)

    def _node_lost(self, node: types.Node, by_user: bool) -> None:
        """Suspend the queued resource of a node that is being deleted, or was preempted."""
        owners = [one for one in self.all.values() if node.queued_resource == validation.by_number(one.name)]
        if not owners or owners[0].state.state not in _WITH_NODES:
            return
        resource = owners[0]
        self._set_state(resource, QueuedState.SUSPENDING, Initiator.USER if by_user else Initiator.SERVICE)

        def finish() -> None:
            self._remove_nodes(resource)
            self._set_state(resource, QueuedState.SUSPENDED, resource.state.state_initiator)

        self._later(self._cloud.timings.suspend, resource, QueuedState.SUSPENDING, finish)

    def fail(self, resource: types.QueuedResource, error: Status) -> None:
        """Let a queued resource fail."""
        self._remove_nodes(resource)
        self._set_state(resource, QueuedState.FAILED)
        resource.state.failed_data.error = error

    def _check(self, resource: types.QueuedResource, parent: validation.Parent) -> None:
        """Check a new queued resource, and count it for the quota."""
        specs = _specs(resource)
        if not specs:
            raise refusals.invalid_field("queued_resource.tpu.node_spec", "is required")
        is_spot = "spot" in resource or any(node.scheduling_config.spot for _, node in specs)
        accelerators = []
        for spec in resource.tpu.node_spec:
            if spec.parent not in (str(parent), validation.by_number(str(parent))):
                raise refusals.invalid_field("queued_resource.tpu.node_spec.parent", f"'{spec.parent}' is not {parent}")
        for node_name, node in specs:
            validation.check_node_id(validation.id_of(node_name))
            accelerators.append(self._nodes.check_new(node_name, node))
        self._cloud.quotas.take(resource.name, parent, accelerators, is_spot=is_spot)

    def _begin_waiting(self, resource: types.QueuedResource) -> None:
        """Let a resource wait for capacity from the start to the end of its start constraint."""
        now = self._cloud.clock.now()
        begin, end = _start_constraint(resource, now)

        def wait() -> None:
            self._set_state(resource, QueuedState.WAITING_FOR_RESOURCES)
            self._provision(resource)

        self._set_state(resource, QueuedState.ACCEPTED)
        self._later(max(begin - now, self._cloud.timings.accept), resource, QueuedState.ACCEPTED, wait)
        if end is not None:
            self._cloud.clock.call_later(max(end - now, 0), partial(self._expire, resource))

    def _expire(self, resource: types.QueuedResource) -> None:
        with self._cloud.changed:
            if self.all.get(resource.name) is resource and resource.state.state in _WAITING:
                message = "The queued resource was not provisioned before the end of its start timing constraint."
                self.fail(resource, refusals.status("DEADLINE_EXCEEDED", message))

    def _provision(self, resource: types.QueuedResource) -> None:
        """Begin to create the nodes, if there is capacity for all."""
        specs = _specs(resource)
        names, zone = [name for name, _ in specs], validation.zone_of(resource.name)
        types_of_nodes = [self._cloud.accelerator(node, zone).name for _, node in specs]
        if not self._cloud.capacity.grant(names, zone, types_of_nodes):
            return
        for name, node in specs:
            self._nodes.add(name, node, creator=resource.name, is_multislice=len(specs) > 1)
        self._set_state(resource, QueuedState.PROVISIONING)
        fault = self._cloud.faults.take(_PROVISION, zone, validation.id_of(resource.name))
        finish = partial(self._finish_provisioning, resource, fault.error())
        self._cloud.clock.call_later(fault.duration(self._cloud.timings.create), finish)

    def _finish_provisioning(self, resource: types.QueuedResource, error: ApiError | None) -> None:
        if resource.state.state != QueuedState.PROVISIONING:
            return
        if error is not None:
            self._set_state(resource, QueuedState.SUSPENDING, Initiator.SERVICE)
            fail = partial(self.fail, resource, error.status())
            self._later(self._cloud.timings.suspend, resource, QueuedState.SUSPENDING, fail)
            return
        ready = [self._nodes.make_ready(node) for node in self._nodes_of(resource)]  # the API answers meanwhile
        with self._cloud.changed:
            if all(ready) and resource.state.state == QueuedState.PROVISIONING:
                self._set_state(resource, QueuedState.ACTIVE)

    def _nodes_of(self, resource: types.QueuedResource) -> Sequence[types.Node]:
        name = validation.by_number(resource.name)
        return [node for node in self._nodes.all.values() if node.queued_resource == name]

    def _remove_nodes(self, resource: types.QueuedResource) -> None:
        for node in self._nodes_of(resource):
            self._nodes.remove(node)

    def _remove(self, resource: types.QueuedResource) -> None:
        with self._cloud.changed:
            self._cloud.quotas.release(resource.name)
            del self.all[resource.name]
            self._cloud.changed.notify_all()

    def _set_state(
        self, resource: types.QueuedResource, state: Any, initiator: Any = Initiator.STATE_INITIATOR_UNSPECIFIED
    ) -> None:
        with self._cloud.changed:
            data: dict[str, Any] = (
                {} if state == QueuedState.WAITING_FOR_RESOURCES else {f"{state.name.lower()}_data": {}}
            )
            resource.state = types.QueuedResourceState(state=state, state_initiator=initiator, **data)
            self._cloud.changed.notify_all()

    def _later(self, seconds: float, resource: types.QueuedResource, state: Any, act: Callable[[], None]) -> None:
        """Execute an action after a time, unless the resource then has another state."""

        def check_and_act() -> None:
            with self._cloud.changed:
                if self.all.get(resource.name) is resource and resource.state.state == state:
                    act()

        self._cloud.clock.call_later(seconds, check_and_act)


def _specs(resource: types.QueuedResource) -> list[tuple[str, types.Node]]:
    """Return the names and descriptions of the nodes that a queued resource requests."""
    found = []
    parent, _, resource_id = resource.name.partition("/queuedResources/")
    for spec in resource.tpu.node_spec:
        node = types.Node(spec.node)
        if "spot" in resource:
            node.scheduling_config.spot = True
        if "multislice_params" in spec:
            prefix = spec.multislice_params.node_id_prefix or resource_id
            if spec.multislice_params.node_count < 2:
                raise refusals.invalid_field("multislice_params.node_count", "must be greater than 1")
            ids = [f"{prefix}-{number}" for number in range(spec.multislice_params.node_count)]
        else:
            ids = [spec.node_id]
        found += [(f"{parent}/nodes/{one}", types.Node(node)) for one in ids]
    return found


def _refer_by_number(resource: types.QueuedResource) -> None:
    """Let the parts of a queued resource name their parents, in the form of Google's service."""
    for spec in resource.tpu.node_spec:
        spec.parent = validation.by_number(spec.parent)
        spec.node.queued_resource = validation.by_number(resource.name)


def _start_constraint(resource: types.QueuedResource, now: float) -> tuple[float, float | None]:
    """Return the earliest and the latest time at which the service may begin to create the nodes."""
    policy = types.QueuedResource.QueueingPolicy.pb(resource.queueing_policy)
    chosen = policy.WhichOneof("start_timing_constraints")
    if chosen is None:
        return now, None
    value = getattr(policy, chosen)
    if chosen == "valid_interval":
        return value.start_time.timestamp(), value.end_time.timestamp()
    seconds = (
        now + value.ToTimedelta().total_seconds() if chosen.endswith("_duration") else value.seconds + value.nanos / 1e9
    )
    return (seconds, None) if chosen.startswith("valid_after") else (now, seconds)
