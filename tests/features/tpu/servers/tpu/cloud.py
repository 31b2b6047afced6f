"""What the parts of the test server share: clock, lock, faults, capacity and quotas, and the history of all nodes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final, TypeVar

from google.cloud.tpu_v2 import types
from google.protobuf.timestamp_pb2 import Timestamp

from tests.features.tpu.servers.tpu import refusals, validation
from tests.features.tpu.servers.tpu.catalog import CATALOG, Accelerator
from tests.features.tpu.servers.tpu.clock import Clock
from tests.features.tpu.servers.tpu.faults import Faults
from tests.features.tpu.servers.tpu.machines import Machines
from tests.features.tpu.servers.tpu.validation import Parent

# The client library does not annotate the members of its enumerations: to mypy, they would be integers.
NodeState: Final[Any] = types.Node.State
Health: Final[Any] = types.Node.Health
ApiVersion: Final[Any] = types.Node.ApiVersion
QueuedState: Final[Any] = types.QueuedResourceState.State
Initiator: Final[Any] = types.QueuedResourceState.StateInitiator

T = TypeVar("T")


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
    """The history of one node. Another node can have its name after its deletion.

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


class Capacity:
    """The capacity of zones in nodes of an accelerator type. A zone without a limit has enough."""

    def __init__(self) -> None:
        self._limits: dict[tuple[str, str], int] = {}
        self._granted: dict[str, tuple[str, str]] = {}

    def limit(self, zone: str, accelerator: str, nodes: int | None) -> None:
        """Set how many nodes whose types match a pattern the zone has; None removes the limit."""
        self._limits.pop((zone, accelerator), None)
        if nodes is not None:
            self._limits[zone, accelerator] = nodes

    def grant(self, names: Sequence[str], zone: str, accelerators: Sequence[str]) -> bool:
        """Grant capacity to nodes, to all of them or to none."""
        for name, accelerator in zip(names, accelerators, strict=True):
            self._granted[name] = (zone, accelerator)
        if all(self._used(*key) <= nodes for key, nodes in self._limits.items() if key[0] == zone):
            return True
        self.release(names)
        return False

    def release(self, names: Iterable[str]) -> None:
        """Take capacity back."""
        for name in names:
            self._granted.pop(name, None)

    def _used(self, zone: str, pattern: str) -> int:
        return sum(one == zone and fnmatchcase(accelerator, pattern) for one, accelerator in self._granted.values())


class Quotas:
    """The quotas of a project for each zone. A quota without a limit is not checked.

    A queued resource counts until its own deletion, also when it is SUSPENDED or FAILED.
    """

    def __init__(self) -> None:
        self._limits: dict[str, int] = {}
        self._taken: dict[str, tuple[str, str, int]] = {}  # by the name of the node or queued resource

    def limit(self, quota: str, amount: int | None) -> None:
        """Set a limit in chips or cores, by the name of the quota; None removes the limit."""
        self._limits.pop(quota, None)
        if amount is not None:
            self._limits[quota] = amount

    def take(self, name: str, parent: Parent, accelerators: Sequence[Accelerator], *, is_spot: bool) -> None:
        """Count a new node or queued resource.

        Raises:
            ApiError: a limit would be exceeded.
        """
        quota, amount = accelerators[0].quota_name(is_spot=is_spot), sum(one.size for one in accelerators)
        used = sum(taken for zone, other, taken in self._taken.values() if (zone, other) == (parent.zone, quota))
        limit = self._limits.get(quota)
        if limit is not None and used + amount > limit:
            raise refusals.quota_exceeded(quota, limit, parent.zone, parent.project)
        self._taken[name] = (parent.zone, quota, amount)

    def release(self, name: str) -> None:
        """Count a node or queued resource no more."""
        self._taken.pop(name, None)


class Cloud:
    """The shared state. Code that reads or changes the state holds the lock `changed`."""

    def __init__(self, *, clock: Clock, timings: Timings, machines: Machines) -> None:
        self.clock = clock
        self.timings = timings
        self.machines = machines
        self.changed = threading.Condition(threading.RLock())
        self.faults = Faults()
        self.capacity = Capacity()
        self.quotas = Quotas()
        self.history: list[NodeRecord] = []
        self.offers: dict[str, Sequence[str]] = {}  # patterns of the accelerator types of a zone, if not all
        self.unreachable: set[str] = set()  # zones that lists leave out

    def wait_for(self, predicate: Callable[[], bool], seconds: float) -> None:
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
        name = validation.id_of(node.accelerator_type)
        if not name and not config.topology:
            raise refusals.bad_request("Either accelerator_type or accelerator_config must be specified")
        for one in self.offered(zone):
            if one.name == name or (not name and (one.generation, one.topology) == (config.type_, config.topology)):
                return one
        raise refusals.unknown_accelerator(name or f"{config.type_.name} {config.topology}", zone)

    def page(self, request: Any, resources: Mapping[str, T]) -> tuple[Sequence[T], Mapping[str, Any]]:
        """Return the page of resources that a list request names, and the other fields of its response."""
        parent = validation.parent(request.parent, may_be_all=True)
        unreachable = sorted(zone for zone in self.unreachable if parent.zone in ("-", zone))
        found = [
            one
            for name, one in sorted(resources.items())
            if parent.contains(name) and validation.zone_of(name) not in unreachable
        ]
        items, token = validation.page(found, request.page_size, request.page_token)
        names = [f"projects/{parent.project}/locations/{zone}" for zone in unreachable]
        return items, {"next_page_token": token, "unreachable": names}
