"""The requests about nodes: https://cloud.google.com/tpu/docs/reference/rest/v2/projects.locations.nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from google.cloud.tpu_v2 import types
from google.longrunning.operations_pb2 import Operation
from google.protobuf.empty_pb2 import Empty
from google.rpc.status_pb2 import Status

from tests.servers.tpu import checks, pages, refusals
from tests.servers.tpu.catalog import CATALOG
from tests.servers.tpu.cloud import Cloud
from tests.servers.tpu.enums import NodeState
from tests.servers.tpu.node_store import NodeStore, parent_of_node
from tests.servers.tpu.operations import Operations

_UPDATABLE: Final = ("description", "tags", "labels", "metadata", "network_config.enable_external_ips")


@dataclass(frozen=True, slots=True)
class Effect:
    """Changes of the usual course of a request, by a fault.

    Args:
        error: the error with which the operation ends; None means success.
        seconds: time that the operation takes; None means the usual time.
    """

    error: Status | None = None
    seconds: float | None = None

    def duration(self, usual: float) -> float:
        """Return the time that the operation takes."""
        return usual if self.seconds is None else self.seconds


class Nodes:
    """The methods of the API for nodes."""

    def __init__(self, cloud: Cloud, store: NodeStore, operations: Operations) -> None:
        self._cloud = cloud
        self._store = store
        self._operations = operations

    def create(self, request: types.CreateNodeRequest, effect: Effect) -> Operation:
        """Begin to create a node."""
        parent = checks.parent(request.parent)
        checks.node_id(request.node_id)
        name = f"{parent}/nodes/{request.node_id}"
        accelerator = self._store.check_new(name, request.node)
        self._cloud.quotas.take(name, parent, [accelerator], is_spot=_is_spot(request.node))
        operation = self._operations.begin(parent, name, "create")
        has_room = self._cloud.capacity.grant([name], parent.zone, [accelerator.name])
        is_reserved = request.node.scheduling_config.reserved
        error = effect.error or (None if has_room else refusals.stock_out(parent.zone, is_reserved=is_reserved))
        node = self._store.add(name, request.node, creator="CreateNode")

        def finish() -> None:
            if error is None and self._store.make_ready(node):
                self._operations.finish(operation, node)
            elif error is not None and self._store.is_present(node, NodeState.CREATING):
                self._store.remove(node)
                self._operations.finish(operation, error)
            else:
                self._operations.finish(operation, refusals.unsupported_state("update", node.state.name).status())

        self._cloud.clock.call_later(effect.duration(self._cloud.timings.create), finish)
        return self._operations.get(operation)

    def get(self, request: types.GetNodeRequest) -> types.Node:
        """Return a node."""
        return self._store.find(request.name)

    def list(self, request: types.ListNodesRequest) -> types.ListNodesResponse:
        """Return a page of the nodes of a zone, or of all zones."""
        parent = checks.parent(request.parent, may_be_all=True)
        found = [node for name, node in sorted(self._store.all().items()) if parent.contains(name)]
        reachable = [node for node in found if parent_of_node(node).zone not in self._cloud.unreachable]
        page = pages.page(reachable, request.page_size, request.page_token)
        return types.ListNodesResponse(
            nodes=page.items, next_page_token=page.next_page_token, unreachable=self._cloud.unreachable_in(parent)
        )

    def delete(self, request: types.DeleteNodeRequest, effect: Effect) -> Operation:
        """Begin to delete a node."""
        node = self._store.find(request.name)
        if node.state == NodeState.DELETING:
            raise refusals.unsupported_state("delete", node.state.name)

        def act() -> Empty:
            self._store.remove(node)
            return Empty()

        operation = self._begin(node, "delete", effect, state=NodeState.DELETING, act=act)
        if effect.error is None:
            self._store.lost(node, by_user=True)
        return operation

    def stop(self, request: types.StopNodeRequest, effect: Effect) -> Operation:
        """Begin to stop a node with one VM."""
        node = self._of_one_vm(request.name, "stop", NodeState.READY)

        def act() -> types.Node:
            self._cloud.machines.stop(node.name)
            self._store.set_state(node, NodeState.STOPPED)
            return node

        return self._begin(node, "stop", effect, state=NodeState.STOPPING, act=act)

    def start(self, request: types.StartNodeRequest, effect: Effect) -> Operation:
        """Begin to start a stopped node."""
        node = self._of_one_vm(request.name, "start", NodeState.STOPPED)

        def act() -> types.Node:
            self._cloud.machines.restart(node)
            self._store.set_state(node, NodeState.READY)
            return node

        return self._begin(node, "start", effect, state=NodeState.STARTING, act=act)

    def update(self, request: types.UpdateNodeRequest, effect: Effect) -> Operation:
        """Begin to change the fields of a node that its mask names."""
        node = self._store.find(request.node.name)
        if node.state not in (NodeState.READY, NodeState.STOPPED):
            raise refusals.unsupported_state("update", node.state.name)
        paths = list(request.update_mask.paths)
        if not paths or not set(paths) <= set(_UPDATABLE):
            raise refusals.invalid_field("update_mask", f"{paths} are not all in {list(_UPDATABLE)}")
        checks.changeable(request.node)

        def act() -> types.Node:
            for path in paths:
                if path == "network_config.enable_external_ips":
                    node.network_config.enable_external_ips = request.node.network_config.enable_external_ips
                else:
                    setattr(node, path, getattr(request.node, path))
            self._cloud.machines.update(node)
            return node

        return self._begin(node, "update", effect, state=node.state, act=act)

    def guest_attributes(self, request: types.GetGuestAttributesRequest) -> types.GetGuestAttributesResponse:
        """Return the guest attributes of workers, for example their SSH host keys."""
        node = self._store.find(request.name)
        workers = self._cloud.machines.guest_attributes(node.name)
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
        node = self._store.find(name)
        if CATALOG[node.accelerator_type].workers > 1 or node.queued_resource:
            raise refusals.bad_request(f"{action} is not supported for TPU Pods and queued resources")
        if node.state != state:
            raise refusals.unsupported_state(action, node.state.name)
        return node

    def _begin(
        self,
        node: types.Node,
        verb: str,
        effect: Effect,
        *,
        state: Any,
        act: Callable[[], types.Node | Empty],
    ) -> Operation:
        """Set the state of a node, and act after the usual time, unless the state has changed meanwhile."""
        operation = self._operations.begin(parent_of_node(node), node.name, verb)
        before = node.state
        self._store.set_state(node, state)

        def finish() -> None:
            with self._cloud.changed:
                if state == NodeState.DELETING and not self._store.exists(node):
                    result = Empty()  # its queued resource was faster
                elif not self._store.is_present(node, state):
                    result = refusals.unsupported_state(verb, node.state.name).status()
                elif effect.error is not None:
                    self._store.set_state(node, before)
                    result = effect.error
                else:
                    result = act()
                self._operations.finish(operation, result)

        timings = self._cloud.timings
        usual = timings.delete if state == NodeState.DELETING else timings.change
        self._cloud.clock.call_later(effect.duration(usual), finish)
        return self._operations.get(operation)


def _is_spot(node: types.Node) -> bool:
    return bool(node.scheduling_config.spot or node.scheduling_config.preemptible)
