"""What targets rent, and what it costs per hour. `config/prices.py` reads the prices from a file."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

from toolbox.ground.model import accelerators

CURRENCY: Final = "USD"
"""The currency of all prices in `config/prices.yaml`."""
SECONDS_PER_HOUR: Final = 3600.0


class Tier(StrEnum):
    """How accelerators are rented, which determines their price."""

    ON_DEMAND = "on_demand"
    SPOT = "spot"
    RESERVED = "reserved"


@dataclass(frozen=True, slots=True)
class Rental:
    """Accelerators that a target rents.

    Args:
        accelerator: the name of the accelerator in `config/prices.yaml`, such as `v6e`.
        chips: the number of chips that are paid for, in all slices together.
        region: the region, such as `us-central1`.
        label: the name in records and reports, such as `v6e-8` or `2x v6e-8`.
    """

    accelerator: str
    chips: int
    region: str
    tier: Tier
    label: str

    @classmethod
    def of_tpu(cls, name: str, *, zone: str, tier: Tier, slices: int = 1) -> Self:
        """Return the rental of TPU slices.

        Args:
            name: the type of each slice, such as `v5litepod-16`.

        Raises:
            ValueError: there is no such type, or the zone is not a zone.
        """
        tpu = accelerators.parse(name)
        label = tpu.name if slices == 1 else f"{slices}x {tpu.name}"
        return cls(tpu.generation.name, tpu.chips * slices, accelerators.region(zone), tier, label)


@dataclass(frozen=True, slots=True)
class Price:
    """The price of a target for one hour.

    Args:
        per_hour: the price, in the currency of the project; None if it is unknown, which never means that it is 0.
        basis: where the price is from; for an unknown price, the reason and what to do.
    """

    per_hour: float | None = None
    basis: str = "the target has no `cost_per_hour`"

    def of(self, seconds: float) -> float | None:
        """Return the cost of a time in seconds; None if the price is unknown."""
        return None if self.per_hour is None else seconds / SECONDS_PER_HOUR * self.per_hour


def amount(value: float) -> str:
    """Return an amount of money without its currency. A small amount has more digits after the point."""
    return f"{value:,.2f}" if value >= 1 or not value else f"{value:.2g}"
