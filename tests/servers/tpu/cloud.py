"""What the parts of the test server share: the clock, the lock, the limits and the history of all nodes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final, Protocol

from google.cloud.tpu_v2 import types
from google.protobuf.timestamp_pb2 import Timestamp

from tests.servers.tpu import refusals
from tests.servers.tpu.catalog import CATALOG, Accelerator
from tests.servers.tpu.clock import Clock
from tests.servers.tpu.limits import Capacity, Quotas
from tests.servers.tpu.names import Parent

_WAIT_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds that the service takes. Tests choose longer ones to see the states in between.

    Args:
        create: from CREATING to READY.
        delete: from DELETING to the end of the node or queued resource.
        accept: from CREATING to ACCEPTED, and to WAITING_FOR_RESOURCES.
        suspend: from SUSPENDING to SUSPENDED.
        change: from STOPPING to STOPPED, from STARTING to READY, and the duration of an update.
        boot: from READY until the workers accept connections.
    """

    create: float = 0.02
    delete: float = 0.02
    accept: float = 0.005
    suspend: float = 0.02
    change: float = 0.02
    boot: float = 0.0


@dataclass(slots=True)
class NodeRecord:
    """The life of one node. Its name can occur again after its deletion.

    Args:
        creator: `CreateNode`, or the name of the queued resource.
        states: states in their order, without repetitions.
    """

    name: str
    accelerator_type: str
    creator: str
    labels: Mapping[str, str]
    created: float
    deleted: float | None = None
    states: list[str] = field(default_factory=list)


class Machines(Protocol):
    """The VMs of the nodes."""

    def start(self, node: types.Node, seconds: float) -> Sequence[types.NetworkEndpoint]:
        """Start all VMs of a node, which accept connections after some seconds, and return their addresses."""

    def restart(self, node: types.Node, workers: Iterable[int] | None = None) -> None:
        """Start VMs that do not run; None means all."""

    def stop(self, name: str, workers: Iterable[int] | None = None) -> None:
        """Kill VMs with all their processes; None means all."""

    def forget(self, name: str) -> None:
        """Kill all VMs of a node, and delete their disks."""

    def update(self, node: types.Node) -> None:
        """Tell the VMs about new metadata."""

    def guest_attributes(self, name: str) -> Sequence[Mapping[tuple[str, str], str]]:
        """Return the attributes of every worker, by namespace and key."""


class Cloud:
    """The shared state. Code that reads or changes it holds `changed`."""

    def __init__(self, *, clock: Clock, timings: Timings, machines: Machines) -> None:
        self.clock = clock
        self.timings = timings
        self.machines = machines
        self.changed = threading.Condition(threading.RLock())
        self.capacity = Capacity()
        self.quotas = Quotas()
        self.history: list[NodeRecord] = []
        self.offers: dict[str, Sequence[str]] = {}  # patterns of the accelerator types of a zone, if not all
        self.unreachable: set[str] = set()  # zones that lists leave out

    def wait_for(self, predicate: Callable[[], bool], seconds: float = _WAIT_SECONDS) -> None:
        """Wait until a condition is true.

        Raises:
            TimeoutError: the condition is still false.
        """
        with self.changed:
            if not self.changed.wait_for(predicate, seconds):
                raise TimeoutError(f"the expected state was not reached within {seconds:g} s")

    def timestamp(self) -> Timestamp:
        """Return the present time."""
        now = self.clock.now()
        return Timestamp(seconds=int(now), nanos=int(now % 1 * 1_000_000) * 1000)

    def offered(self, zone: str) -> Sequence[Accelerator]:
        """Return the accelerator types that a zone offers."""
        patterns = self.offers.get(zone, ["*"])
        return [one for one in CATALOG.values() if any(fnmatchcase(one.name, pattern) for pattern in patterns)]

    def accelerator(self, node: types.Node, zone: str) -> Accelerator:
        """Return the accelerator type of a node.

        Raises:
            ApiError: the zone does not offer it.
        """
        config = node.accelerator_config
        name = node.accelerator_type.rpartition("/")[2]
        if not name and not config.topology:
            raise refusals.bad_request("Either accelerator_type or accelerator_config must be specified")
        for one in self.offered(zone):
            if one.name == name or (not name and (one.generation, one.topology) == (config.type_, config.topology)):
                return one
        raise refusals.unknown_accelerator(name or f"{config.type_.name} {config.topology}", zone)

    def unreachable_in(self, parent: Parent) -> Sequence[str]:
        """Return the locations that a list of this project and zone cannot reach."""
        zones = sorted(zone for zone in self.unreachable if parent.zone in ("-", zone))
        return [f"projects/{parent.project}/locations/{zone}" for zone in zones]
