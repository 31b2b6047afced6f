"""What a test can do to the service and ask about it. Arguments and results are JSON values.

`control.py` has the same methods with types; they reach this module directly or over a socket.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from google.cloud.tpu_v2 import types
from google.protobuf import json_format

from tests.servers.tpu import faults
from tests.servers.tpu.cloud import Timings
from tests.servers.tpu.enums import Health, NodeState
from tests.servers.tpu.machines import RealMachines
from tests.servers.tpu.methods import Api
from tests.servers.tpu.names import id_of
from tests.servers.tpu.refusals import status


class Console:
    """The verbs of the control interface. A node or queued resource can be given by its name or its id."""

    def __init__(self, api: Api, workers: RealMachines | None) -> None:
        self._api = api
        self._cloud = api.cloud
        self._workers = workers

    def execute(self, verb: str, arguments: Mapping[str, Any]) -> Any:
        """Execute a verb."""
        if verb.startswith("_") or verb == "execute":
            raise ValueError(f"there is no verb {verb}")
        return getattr(self, verb)(**arguments)

    # Faults and limits

    def add_fault(self, fault: Mapping[str, Any]) -> None:
        """Apply a fault from now on."""
        self._api.faults.add(faults.from_json(fault))

    def clear_faults(self) -> None:
        """Remove all faults."""
        self._api.faults.clear()

    def set_capacity(self, zone: str, accelerator: str, nodes: int | None) -> None:
        """Limit the number of nodes; queued resources that wait get what has become free."""
        with self._cloud.changed:
            self._cloud.capacity.limit(zone, accelerator, nodes)
            self._api.queued.serve()

    def set_quota(self, quota: str, amount: int | None) -> None:
        """Limit the chips or cores."""
        with self._cloud.changed:
            self._cloud.quotas.limit(quota, amount)

    def set_offer(self, zone: str, accelerators: Sequence[str]) -> None:
        """Offer only accelerator types that match patterns."""
        with self._cloud.changed:
            self._cloud.offers[zone] = accelerators

    def set_unreachable(self, zones: Iterable[str]) -> None:
        """Leave zones out of lists."""
        with self._cloud.changed:
            self._cloud.unreachable = set(zones)

    def set_timings(self, timings: Mapping[str, float]) -> None:
        """Change how long the service takes."""
        self._cloud.timings = Timings(**timings)

    def advance(self, seconds: float | None) -> None:
        """Move the clock forward."""
        self._cloud.clock.advance(seconds)

    # Nodes

    def preempt(self, node: str) -> None:
        """Preempt a node."""
        with self._cloud.changed:
            self._api.store.preempt(self._node(node))

    def maintain(self, node: str, seconds: float | None) -> None:
        """Begin a maintenance."""
        with self._cloud.changed:
            self._api.store.maintain(self._node(node), seconds)

    def repair(self, node: str, seconds: float | None) -> None:
        """Begin a repair."""
        with self._cloud.changed:
            self._api.store.repair(self._node(node), seconds)

    def set_health(self, node: str, health: str, description: str) -> None:
        """Change the health."""
        with self._cloud.changed:
            self._api.store.set_health(self._node(node), Health[health], description)

    def set_state(self, node: str, state: str) -> None:
        """Change the state, and nothing else."""
        with self._cloud.changed:
            self._api.store.set_state(self._node(node), NodeState[state])

    def fail_queued_resource(self, resource: str, code: str, message: str) -> None:
        """Let a queued resource fail."""
        with self._cloud.changed:
            found = next(one for one in self._api.queued.all() if resource in (one.name, id_of(one.name)))
            self._api.queued.fail(found, status(code, message))

    def wait_for_state(self, name: str, state: str | None, seconds: float) -> None:
        """Wait until a node or queued resource has a state; None means that it does not exist."""
        self._cloud.wait_for(lambda: self._state(name) == state, seconds)

    # Workers

    def lose_worker(self, node: str, worker: int) -> None:
        """Kill a VM."""
        self._machines().stop(self._node(node).name, [worker])

    def return_worker(self, node: str, worker: int) -> None:
        """Boot a VM that was lost."""
        self._machines().restart(self._node(node), [worker])

    def break_worker(self, node: str, worker: int) -> None:
        """Let a VM accept connections and never answer."""
        self._machines().break_workers(self._node(node).name, [worker])

    def workers(self, node: str) -> Sequence[Mapping[str, Any]]:
        """Describe the VMs of a node."""
        return [
            {
                "hostname": machine.hostname,
                "addresses": list(machine.addresses),
                "directory": str(machine.directory),
                "startup_log": machine.log(),
                "boots": machine.boots,
                "is_running": machine.process is not None,
            }
            for machine in self._machines().machines(self._node(node).name)
        ]

    # Records

    def nodes(self) -> Sequence[Mapping[str, Any]]:
        """Return all nodes as the REST API describes them."""
        with self._cloud.changed:
            return [json_format.MessageToDict(types.Node.pb(one)) for one in self._api.store.all().values()]

    def queued_resources(self) -> Sequence[Mapping[str, Any]]:
        """Return all queued resources as the REST API describes them."""
        with self._cloud.changed:
            return [json_format.MessageToDict(types.QueuedResource.pb(one)) for one in self._api.queued.all()]

    def history(self) -> Sequence[Mapping[str, Any]]:
        """Return the records of all nodes that have ever existed."""
        with self._cloud.changed:
            return [dataclasses.asdict(one) for one in self._cloud.history]

    def requests(self) -> Sequence[Mapping[str, Any]]:
        """Return all requests."""
        return [dataclasses.asdict(one) for one in list(self._api.requests)]

    def _node(self, name: str) -> types.Node:
        for node in self._api.store.all().values():
            if name in (node.name, id_of(node.name)):
                return node
        raise LookupError(f"there is no node {name}")

    def _state(self, name: str) -> str | None:
        for resource in self._api.queued.all():
            if name in (resource.name, id_of(resource.name)):
                return str(resource.state.state.name)
        try:
            return str(self._node(name).state.name)
        except LookupError:
            return None

    def _machines(self) -> RealMachines:
        if self._workers is None:
            raise LookupError("this server has no workers: start it with has_workers=True")
        return self._workers
