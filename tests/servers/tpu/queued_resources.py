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

from tests.servers.tpu import checks, pages, refusals
from tests.servers.tpu.cloud import Cloud
from tests.servers.tpu.enums import Initiator, NodeState, QueuedState
from tests.servers.tpu.names import Parent
from tests.servers.tpu.node_store import NodeStore
from tests.servers.tpu.nodes import Effect
from tests.servers.tpu.operations import Operations

PROVISION: Final = "ProvisionQueuedResource"
_WAITING: Final = (QueuedState.ACCEPTED, QueuedState.WAITING_FOR_RESOURCES)
_WITH_NODES: Final = (QueuedState.PROVISIONING, QueuedState.ACTIVE)
_DELETABLE: Final = (*_WAITING, QueuedState.FAILED, QueuedState.SUSPENDED)


class QueuedResources:
    """The methods of the API for queued resources, and their course."""

    def __init__(self, cloud: Cloud, store: NodeStore, operations: Operations) -> None:
        self._cloud = cloud
        self._store = store
        self._operations = operations
        self._queued: dict[str, types.QueuedResource] = {}
        self._requests: dict[str, str] = {}  # operations by the id of the request
        self._provisioning: dict[str, Effect] = {}  # what a fault changes
        store.owner = self

    # Requests

    def create(self, request: types.CreateQueuedResourceRequest, effect: Effect, provisioning: Effect) -> Operation:
        """Begin to create a queued resource.

        Args:
            provisioning: what a fault changes after the request has got capacity.
        """
        parent = checks.parent(request.parent)
        if request.request_id in self._requests:
            return self._operations.get(self._requests[request.request_id])
        checks.queued_resource_id(request.queued_resource_id)
        name = f"{parent}/queuedResources/{request.queued_resource_id}"
        if name in self._queued:
            raise refusals.already_exists(name)
        resource = types.QueuedResource(request.queued_resource)
        resource.name = name
        self._check(resource, parent)
        resource.create_time = self._cloud.timestamp()
        operation = self._operations.begin(parent, name, "create")
        if request.request_id:
            self._requests[request.request_id] = operation
        self._queued[name] = resource
        self._provisioning[name] = provisioning
        self._set_state(resource, QueuedState.CREATING)

        def finish() -> None:
            if effect.error is not None:
                self._remove(resource)
            else:
                self._set_state(resource, QueuedState.ACCEPTED)
                self._begin_waiting(resource)
            self._operations.finish(operation, effect.error or resource)

        self._later(effect.duration(self._cloud.timings.accept), resource, QueuedState.CREATING, finish)
        return self._operations.get(operation)

    def get(self, request: types.GetQueuedResourceRequest) -> types.QueuedResource:
        """Return a queued resource."""
        return self.find(request.name)

    def list(self, request: types.ListQueuedResourcesRequest) -> types.ListQueuedResourcesResponse:
        """Return a page of the queued resources of a zone, or of all zones."""
        parent = checks.parent(request.parent, may_be_all=True)
        unreachable = self._cloud.unreachable_in(parent)
        found = [
            one
            for name, one in sorted(self._queued.items())
            if parent.contains(name) and not name.startswith(tuple(f"{prefix}/" for prefix in unreachable))
        ]
        page = pages.page(found, request.page_size, request.page_token)
        return types.ListQueuedResourcesResponse(
            queued_resources=page.items, next_page_token=page.next_page_token, unreachable=unreachable
        )

    def delete(self, request: types.DeleteQueuedResourceRequest, effect: Effect) -> Operation:
        """Begin to delete a queued resource, with `force` also its nodes."""
        resource = self.find(request.name)
        state = resource.state.state
        if state == QueuedState.DELETING or (state not in _DELETABLE and not request.force):
            raise refusals.failed_precondition(
                f"Queued resource {resource.name} is in state {state.name} and cannot be deleted. "
                "Delete its nodes first, or use force."
            )
        operation = self._operations.begin(checks.parent(resource.name), resource.name, "delete")
        self._set_state(resource, QueuedState.DELETING)
        for node in self._nodes(resource):
            self._store.set_state(node, NodeState.DELETING)

        def finish() -> None:
            if effect.error is None:
                self._remove_nodes(resource)
                self._remove(resource)
            else:
                self._set_state(resource, state)
            self._operations.finish(operation, effect.error or Empty())

        self._later(effect.duration(self._cloud.timings.delete), resource, QueuedState.DELETING, finish)
        return self._operations.get(operation)

    def reset(self, request: types.ResetQueuedResourceRequest, effect: Effect) -> Operation:
        """Begin to make the nodes of an active queued resource again."""
        resource = self.find(request.name)
        state = resource.state.state
        if state != QueuedState.ACTIVE:
            raise refusals.failed_precondition(f"reset is not supported while in state {state.name}")
        operation = self._operations.begin(checks.parent(resource.name), resource.name, "reset")

        def finish() -> None:
            if effect.error is None:
                self._remove_nodes(resource)
                self._begin_waiting(resource)
            self._operations.finish(operation, effect.error or resource)

        self._later(effect.duration(self._cloud.timings.change), resource, QueuedState.ACTIVE, finish)
        return self._operations.get(operation)

    # Course

    def find(self, name: str) -> types.QueuedResource:
        """Return a queued resource.

        Raises:
            ApiError: it does not exist.
        """
        checks.parent(name)
        if name not in self._queued:
            raise refusals.not_found(name)
        return self._queued[name]

    def all(self) -> Sequence[types.QueuedResource]:
        """Return all queued resources."""
        return list(self._queued.values())

    def serve(self) -> None:
        """Give capacity to the queued resources that wait, in the order of their creation."""
        for resource in self.all():
            if resource.state.state == QueuedState.WAITING_FOR_RESOURCES:
                self._provision(resource)

    def node_lost(self, node: types.Node, *, by_user: bool) -> None:
        """Suspend the queued resource of a node that is being deleted, or was preempted."""
        resource = self._queued.get(node.queued_resource)
        if resource is None or resource.state.state not in _WITH_NODES:
            return
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

    def _check(self, resource: types.QueuedResource, parent: Parent) -> None:
        """Check a new queued resource, and count it for the quota."""
        specs = _specs(resource)
        if not specs:
            raise refusals.invalid_field("queued_resource.tpu.node_spec", "is required")
        is_spot = "spot" in resource or any(node.scheduling_config.spot for _, node in specs)
        accelerators = []
        for node_name, node in specs:
            if checks.parent(node_name) != parent:
                raise refusals.bad_request(f"The parent of the node {node_name} is not {parent}")
            checks.node_id(node_name.rpartition("/")[2])
            accelerators.append(self._store.check_new(node_name, node))
        self._cloud.quotas.take(resource.name, parent, accelerators, is_spot=is_spot)

    def _begin_waiting(self, resource: types.QueuedResource) -> None:
        """Let a resource wait for capacity from the begin to the end of its start constraint."""
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
            if self._queued.get(resource.name) is resource and resource.state.state in _WAITING:
                message = "The queued resource was not provisioned before the end of its start timing constraint."
                self.fail(resource, refusals.status("DEADLINE_EXCEEDED", message))

    def _provision(self, resource: types.QueuedResource) -> None:
        """Begin to create the nodes, if there is capacity for all."""
        specs = _specs(resource)
        names, parent = [name for name, _ in specs], checks.parent(resource.name)
        types_of_nodes = [self._cloud.accelerator(node, parent.zone).name for _, node in specs]
        if not self._cloud.capacity.grant(names, parent.zone, types_of_nodes):
            return
        is_multislice = len(specs) > 1
        for name, node in specs:
            self._store.add(name, node, creator=resource.name, is_multislice=is_multislice)
        self._set_state(resource, QueuedState.PROVISIONING)
        effect = self._provisioning[resource.name]
        seconds = effect.duration(self._cloud.timings.create)
        self._cloud.clock.call_later(seconds, partial(self._finish_provisioning, resource, effect))

    def _finish_provisioning(self, resource: types.QueuedResource, effect: Effect) -> None:
        if resource.state.state != QueuedState.PROVISIONING:
            return
        if effect.error is not None:
            self._set_state(resource, QueuedState.SUSPENDING, Initiator.SERVICE)
            fail = partial(self.fail, resource, effect.error)
            self._later(self._cloud.timings.suspend, resource, QueuedState.SUSPENDING, fail)
            return
        ready = [self._store.make_ready(node) for node in self._nodes(resource)]
        with self._cloud.changed:
            if all(ready) and resource.state.state == QueuedState.PROVISIONING:
                self._set_state(resource, QueuedState.ACTIVE)

    def _nodes(self, resource: types.QueuedResource) -> Sequence[types.Node]:
        return [node for node in self._store.all().values() if node.queued_resource == resource.name]

    def _remove_nodes(self, resource: types.QueuedResource) -> None:
        for node in self._nodes(resource):
            self._store.remove(node)

    def _remove(self, resource: types.QueuedResource) -> None:
        with self._cloud.changed:
            self._cloud.quotas.release(resource.name)
            del self._queued[resource.name]
            del self._provisioning[resource.name]
            self._cloud.changed.notify_all()

    def _set_state(
        self,
        resource: types.QueuedResource,
        state: Any,
        initiator: Any = Initiator.STATE_INITIATOR_UNSPECIFIED,
    ) -> None:
        with self._cloud.changed:
            data: dict[str, Any] = (
                {} if state == QueuedState.WAITING_FOR_RESOURCES else {f"{state.name.lower()}_data": {}}
            )
            resource.state = types.QueuedResourceState(state=state, state_initiator=initiator, **data)
            self._cloud.changed.notify_all()

    def _later(self, seconds: float, resource: types.QueuedResource, state: Any, act: Callable[[], None]) -> None:
        """Act after a time, unless the resource has another state then."""

        def check_and_act() -> None:
            with self._cloud.changed:
                if self._queued.get(resource.name) is resource and resource.state.state == state:
                    act()

        self._cloud.clock.call_later(seconds, check_and_act)


def _specs(resource: types.QueuedResource) -> list[tuple[str, types.Node]]:
    """Return the names and descriptions of the nodes that a queued resource asks for."""
    found = []
    for spec in resource.tpu.node_spec:
        parent = spec.parent or resource.name.partition("/queuedResources/")[0]
        node = types.Node(spec.node)
        if "spot" in resource:
            node.scheduling_config.spot = True
        if "multislice_params" in spec:
            prefix = spec.multislice_params.node_id_prefix or resource.name.rpartition("/")[2]
            if spec.multislice_params.node_count < 2:
                raise refusals.invalid_field("multislice_params.node_count", "must be greater than 1")
            ids = [f"{prefix}-{number}" for number in range(spec.multislice_params.node_count)]
        else:
            ids = [spec.node_id]
        found += [(f"{parent}/nodes/{one}", types.Node(node)) for one in ids]
    return found


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
