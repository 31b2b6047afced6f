"""Reads the prices of accelerators from `config/prices.yaml` of Topgallant and of the workspace.

An entry of the workspace replaces the entry of Topgallant for the same accelerator, region and tier. All other entries
of Topgallant stay: a team that has negotiated one price need not copy the whole file, and its file hides no price that
a later version of Topgallant adds.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from toolbox.config import contract, document
from toolbox.ground.model.errors import ConfigurationError, ConfigurationFaults
from toolbox.ground.model.prices import CURRENCY, Price, Rental, Tier
from toolbox.ground.system import filesystem, places

FILE: Final = "prices.yaml"
_BLOCK: Final = "prices"
_MAX_BYTES: Final = 1_000_000
_HIGHEST: Final = 10_000.0  # per chip and hour; a higher price is a mistake

Key = tuple[str, str, Tier]
"""An accelerator, a region and a tier."""
_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]{0,59}$")]


class Entry(BaseModel):
    """The price of one accelerator in one region and tier.

    Args:
        accelerator: the name of the accelerator, such as `v6e`.
        region: the region, such as `us-central1`.
        usd_per_chip_hour: the price of one chip for one hour. A target that costs nothing has `cost_per_hour: 0`.
        date: the day on which the price was read.
        source: where the price was read: a URL, or the name of a contract.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    accelerator: _Name
    region: _Name
    tier: Tier
    usd_per_chip_hour: float = Field(gt=0, le=_HIGHEST, allow_inf_nan=False, strict=True)
    date: dt.date
    source: str = Field(min_length=1, max_length=500)


class Contract(BaseModel):
    """The file `config/prices.yaml`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    prices: list[Entry] = []


@dataclass(frozen=True, slots=True)
class ListedPrice:
    """An entry of a file.

    Args:
        where: the file and line of the entry.
    """

    entry: Entry
    where: str

    def __str__(self) -> str:
        """Return the entry with its place, for people."""
        entry = self.entry
        price = f"{entry.usd_per_chip_hour:g} {CURRENCY} per chip-hour"
        return f"{self.where}: {price} of {entry.accelerator}, {entry.tier} in {entry.region} ({entry.date})"


@dataclass(frozen=True, slots=True)
class PriceList:
    """The prices of accelerators.

    Args:
        prices: the entries.
        file: the file to which a missing price should be added.
    """

    prices: Mapping[Key, ListedPrice]
    file: str

    def price(self, rentals: Sequence[Rental], *, currency: str = CURRENCY) -> Price:
        """Return the price of a target that rents one of several alternatives: the price of the most expensive one.

        The price is unknown if the price of an alternative is unknown.

        Args:
            rentals: one item for each region in which the target may rent accelerators.
            currency: the currency of the project.
        """
        if not rentals:
            return Price(None, "the target does not say which accelerators it rents: set its `cost_per_hour`")
        if currency != CURRENCY:
            reason = f"{self.file} has prices in {CURRENCY}, and `results.currency` is {currency}"
            return Price(None, f"{reason}: set the `cost_per_hour` of the target")
        prices = [self._price(rental) for rental in rentals]
        unknown = next((price for price in prices if price.per_hour is None), None)
        return unknown or max(prices, key=lambda price: price.per_hour or 0.0)

    def _price(self, rental: Rental) -> Price:
        listed = self.prices.get((rental.accelerator, rental.region, rental.tier))
        if listed is None:
            missing = f"no price for {rental.accelerator} ({rental.tier}) in {rental.region}"
            return Price(None, f"{missing}: add an entry to {self.file}, or set the `cost_per_hour` of the target")
        return Price(rental.chips * listed.entry.usd_per_chip_hour, f"{rental.chips} chips, {listed}")


def load() -> PriceList:
    """Read the prices of Topgallant, of installed features and of the workspace.

    Raises:
        ConfigurationError: a file is wrong. Each fault is listed with its file and line.
    """
    files = [root / "config" / FILE for root in places.roots()]
    prices: dict[Key, ListedPrice] = {}
    for file in reversed(files):
        if file.is_file():
            prices |= _read(file)
    return PriceList(prices, f"config/{FILE}" if places.workspace() is None else str(files[0]))


def _read(file: Path) -> dict[Key, ListedPrice]:
    what = "the file of prices"
    if filesystem.size(file) > _MAX_BYTES:
        raise ConfigurationError(f"{what} {file} is larger than {_MAX_BYTES:,} bytes")
    parsed = document.load(file, what=what)
    prices: dict[Key, ListedPrice] = {}
    faults: list[str] = []
    for index, entry in enumerate(contract.validated(parsed, (), Contract).prices):
        key = (entry.accelerator, entry.region, entry.tier)
        where = parsed.where((_BLOCK, index))
        if key in prices:
            faults.append(f"{where}: {', '.join(key)} already has a price at {prices[key].where}: remove one of them")
        prices[key] = ListedPrice(entry, where)
    if faults:
        raise ConfigurationFaults(faults)
    return prices
