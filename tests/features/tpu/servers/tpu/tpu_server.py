"""The whole test server in this process, with the methods by which tests control it."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import pytest
from google.cloud.tpu_v2 import types
from google.protobuf import json_format

from tests.features.tpu.servers.tpu.clock import Clock
from tests.features.tpu.servers.tpu.cloud import Cloud, Health, NodeRecord, Timings
from tests.features.tpu.servers.tpu.faults import Fault
from tests.features.tpu.servers.tpu.grpc_api import GrpcServer
from tests.features.tpu.servers.tpu.machines import Machines, RealMachines
from tests.features.tpu.servers.tpu.methods import Api, Recorded
from tests.features.tpu.servers.tpu.refusals import status
from tests.features.tpu.servers.tpu.rest_api import RestServer
from tests.features.tpu.servers.tpu.validation import id_of
from tests.servers.openssh import ServerError

_WAIT_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Worker:
    """One VM of a node.

    Args:
        addresses: the internal address, and the external one if there is one.
        directory: files of the VM; `disk/home`, `disk/root` and `disk/topgallant` are its disk.
        startup_log: output of the startup script.
    """

    hostname: str
    addresses: Sequence[str]
    directory: Path
    startup_log: str
    is_running: bool


class Server:
    """A test server that answers inside a `with` block. A node or queued resource can be given by its name or its id.

    Args:
        directory: directory for the files of the workers.
        timings: how long the service takes.
        has_workers: whether nodes have real VMs, which need root. Otherwise only the API answers.
        is_frozen: whether time stands still, except for `advance`.
        shared: directory of this machine that all workers see at the same path.

    Raises:
        ServerError: this machine cannot run workers.
    """

    def __init__(
        self,
        directory: Path,
        *,
        timings: Timings | None = None,
        has_workers: bool = True,
        is_frozen: bool = False,
        shared: Path | None = None,
    ) -> None:
        self.directory = directory
        self._clock = Clock(frozen=is_frozen)
        self._workers = RealMachines(directory, self._clock, shared) if has_workers else None
        machines = self._workers or Machines()
        self._cloud = Cloud(clock=self._clock, timings=timings or Timings(), machines=machines)
        self._api = Api(self._cloud)
        self._clock.start()
        self._grpc = GrpcServer(self._api)
        self._rest: RestServer | None = None
        self.port = self._grpc.port  # of the API over gRPC, on 127.0.0.1
        self.ssh_port = machines.port  # of all workers, each on its own address

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop the service and all workers.

        Raises:
            AssertionError: something in the server itself has failed.
        """
        self._grpc.stop()
        if self._rest is not None:
            self._rest.stop()
        if self._workers is not None:
            self._clock.run(self._workers.stop_all)  # not while VMs boot
        self._clock.stop()
        assert not self._clock.failures, "\n".join(self._clock.failures)

    @property
    def endpoint(self) -> str:
        """The API over gRPC, as the field `api_endpoint` of a target takes it."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def rest_endpoint(self) -> str:
        """The API over REST, as CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU takes it. It starts at the first use."""
        self._rest = self._rest or RestServer(self._api)
        return f"http://127.0.0.1:{self._rest.port}/"

    # Faults, limits and time

    def add_fault(self, *new: Fault) -> None:
        """Apply faults from now on."""
        for fault in new:
            self._cloud.faults.add(fault)

    def clear_faults(self) -> None:
        """Remove all faults."""
        self._cloud.faults.clear()

    def set_capacity(self, zone: str, accelerator: str = "*", *, nodes: int | None) -> None:
        """Limit the number of nodes of a zone whose types match a pattern; None removes the limit.

        A new node above the limit ends with a stock-out. A queued resource waits.
        """
        with self._cloud.changed:
            self._cloud.capacity.limit(zone, accelerator, nodes)
            self._api.queued.serve()

    def set_quota(self, quota: str, amount: int | None) -> None:
        """Limit the chips (v5e, v6e) or cores in each zone, for example of `TPUV6EPerProjectPerZoneForTPUAPI`."""
        with self._cloud.changed:
            self._cloud.quotas.limit(quota, amount)

    def set_offer(self, zone: str, *accelerators: str) -> None:
        """Offer only accelerator types in a zone that match patterns."""
        with self._cloud.changed:
            self._cloud.offers[zone] = accelerators

    def set_unreachable(self, *zones: str) -> None:
        """Leave zones out of lists, which report them as unreachable."""
        with self._cloud.changed:
            self._cloud.unreachable = set(zones)

    def set_timings(self, timings: Timings) -> None:
        """Change how long the service takes."""
        self._cloud.timings = timings

    def advance(self, seconds: float | None = None) -> None:
        """Move the clock forward, by default to the next event, and wait until the events are over."""
        self._clock.advance(seconds)

    # Nodes and queued resources

    def preempt(self, node: str) -> None:
        """Take the workers of a node away; it becomes PREEMPTED."""
        with self._cloud.changed:
            self._api.nodes.preempt(self._node(node))

    def maintain(self, node: str, seconds: float | None = None) -> None:
        """Let a node be UNHEALTHY_MAINTENANCE without workers, by default without end."""
        with self._cloud.changed:
            self._api.nodes.maintain(self._node(node), seconds)

    def repair(self, node: str, seconds: float | None = None) -> None:
        """Let a node be REPAIRING without workers, by default without end."""
        with self._cloud.changed:
            self._api.nodes.repair(self._node(node), seconds)

    def set_health(self, node: str, health: str, description: str = "") -> None:
        """Change the health of a node, for example to `TIMEOUT`."""
        with self._cloud.changed:
            self._api.nodes.set_health(self._node(node), Health[health], description)

    def fail_queued_resource(self, resource: str, code: str = "INTERNAL", message: str = "an internal error") -> None:
        """Let a queued resource fail."""
        with self._cloud.changed:
            found = next(one for one in self._api.queued.all.values() if resource in (one.name, id_of(one.name)))
            self._api.queued.fail(found, status(code, message))

    def wait_for_state(self, name: str, state: str | None, seconds: float = _WAIT_SECONDS) -> None:
        """Wait until a node or queued resource has a state; None means that it does not exist."""
        self._cloud.wait_for(lambda: self._state(name) == state, seconds)

    # Workers

    def lose_worker(self, node: str, worker: int) -> None:
        """Kill a VM with all its processes. The API goes on to describe the node as READY."""
        self._real().stop(self._node(node).name, [worker])

    def break_worker(self, node: str, worker: int) -> None:
        """Let a VM accept connections and never answer. The API goes on to describe the node as READY."""
        self._real().break_worker(self._node(node).name, worker)

    def workers(self, node: str) -> Sequence[Worker]:
        """Return the VMs of a node."""
        machines = self._real().machines(self._node(node).name)
        return [
            Worker(one.hostname, one.addresses, one.directory, one.log(), one.process is not None) for one in machines
        ]

    # Records

    def nodes(self) -> Sequence[Mapping[str, Any]]:
        """Return all nodes as the REST API describes them."""
        with self._cloud.changed:
            return [json_format.MessageToDict(types.Node.pb(one)) for one in self._api.nodes.all.values()]

    def queued_resources(self) -> Sequence[Mapping[str, Any]]:
        """Return all queued resources as the REST API describes them."""
        with self._cloud.changed:
            return [json_format.MessageToDict(types.QueuedResource.pb(one)) for one in self._api.queued.all.values()]

    def leftovers(self) -> Sequence[str]:
        """Return the names of all nodes and queued resources."""
        with self._cloud.changed:
            return [*self._api.nodes.all, *self._api.queued.all]

    def history(self) -> Sequence[NodeRecord]:
        """Return the records of all nodes that have ever existed, in the order of their creation."""
        with self._cloud.changed:
            return copy.deepcopy(self._cloud.history)

    def created_twice(self) -> Sequence[str]:
        """Return the names of the nodes that were created more than once."""
        counts = Counter(record.name for record in self.history())
        return [name for name, count in counts.items() if count > 1]

    def requests(self, method: str | None = None) -> Sequence[Recorded]:
        """Return all requests, or those of one method."""
        return [one for one in list(self._api.requests) if method in (None, one.method)]

    def _node(self, name: str) -> types.Node:
        with self._cloud.changed:
            for node in self._api.nodes.all.values():
                if name in (node.name, id_of(node.name)):
                    return node
        raise LookupError(f"there is no node {name}")

    def _state(self, name: str) -> str | None:
        states: dict[str, Any] = {one.name: one.state for one in self._api.nodes.all.values()}
        states |= {one.name: one.state.state for one in self._api.queued.all.values()}
        found = [str(state.name) for other, state in states.items() if name in (other, id_of(other))]
        return found[-1] if found else None

    def _real(self) -> RealMachines:
        if self._workers is None:
            raise LookupError("this server has no workers: start it with has_workers=True")
        return self._workers


@contextmanager
def serving(directory: Path, **settings: Any) -> Iterator[Server]:
    """Run a server for a test, which is skipped if this machine cannot run workers."""
    try:
        server = Server(directory, **settings)
    except ServerError as error:
        pytest.skip(str(error))
    with server:
        yield server


def gcloud_environment(server: Server, directory: Path, *, project: str) -> Mapping[str, str]:
    """Return the variables with which `gcloud compute tpus` uses a test server, without any account.

    Args:
        directory: directory for the configuration, so that the one of the user has no effect.
    """
    return {
        "CLOUDSDK_CONFIG": str(directory),
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": server.rest_endpoint,
        "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "1",
        "CLOUDSDK_CORE_PROJECT": project,
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
        "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "1",
        "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "1",
    }
