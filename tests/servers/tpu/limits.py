"""The capacity of the zones, and the quotas of the project."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from tests.servers.tpu import refusals
from tests.servers.tpu.catalog import Accelerator
from tests.servers.tpu.names import Parent


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
        quota, amount = quota_of(accelerators[0], is_spot=is_spot), sum(one.size for one in accelerators)
        used = sum(taken for zone, other, taken in self._taken.values() if (zone, other) == (parent.zone, quota))
        limit = self._limits.get(quota)
        if limit is not None and used + amount > limit:
            raise refusals.quota_exceeded(quota, limit, parent.zone, parent.project)
        self._taken[name] = (parent.zone, quota, amount)

    def release(self, name: str) -> None:
        """Count a node or queued resource no more."""
        self._taken.pop(name, None)


def quota_of(accelerator: Accelerator, *, is_spot: bool) -> str:
    """Return the name of the quota that an accelerator type counts for."""
    return f"TPU{accelerator.preemptible_quota if is_spot else accelerator.quota}PerProjectPerZoneForTPUAPI"
