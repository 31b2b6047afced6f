"""Prices are read from `config/prices.yaml`; entries of the workspace replace entries of Topgallant."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from toolbox.config import prices
from toolbox.ground.model.errors import ConfigurationError
from toolbox.ground.model.prices import Rental, Tier
from toolbox.ground.system import places

ENTRY = {
    "accelerator": "v6e",
    "region": "us-central1",
    "tier": "spot",
    "usd_per_chip_hour": 0.5,
    "date": "2026-11-01",
    "source": "contract 7",
}


def rental(accelerator: str = "v6e", chips: int = 1, region: str = "us-central1", tier: Tier = Tier.SPOT) -> Rental:
    return Rental(accelerator, chips, region, tier, "label")


@pytest.fixture(autouse=True)
def _workspace(tmp_path: Path) -> Iterator[None]:
    with places.pinned(tmp_path):
        yield


def write(workspace: Path, *entries: dict[str, object]) -> Path:
    file = workspace / "config/prices.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(yaml.safe_dump({"prices": list(entries)}, sort_keys=False))
    return file


@pytest.mark.parametrize(
    ("accelerator", "tier", "per_chip"),
    [
        ("v5e", Tier.ON_DEMAND, 1.20),
        ("v5e", Tier.SPOT, 0.245),
        ("v5p", Tier.ON_DEMAND, 4.20),
        ("v5p", Tier.SPOT, 0.836),
        ("v6e", Tier.ON_DEMAND, 2.70),
        ("v6e", Tier.SPOT, 0.544),
    ],
)
def test_the_price_list_contains_the_tpus_of_us_central1(accelerator: str, tier: Tier, per_chip: float) -> None:
    assert prices.load().price([rental(accelerator, 8, tier=tier)]).per_hour == pytest.approx(8 * per_chip)


def test_a_v5p_8_costs_four_chips() -> None:
    tpu = Rental.of_tpu("v5p-8", zone="us-central1-a", tier=Tier.ON_DEMAND)
    price = prices.load().price([tpu])
    assert price.per_hour == pytest.approx(16.80)
    assert price.basis.endswith("4.2 USD per chip-hour of v5p, on_demand in us-central1 (2026-11-23)")


def test_an_entry_of_the_workspace_replaces_only_its_own_price(tmp_path: Path) -> None:
    write(tmp_path, ENTRY)
    price = prices.load().price([rental(chips=2)])
    assert price.per_hour == 1.0
    assert "config/prices.yaml:2" in price.basis
    assert prices.load().price([rental(tier=Tier.ON_DEMAND)]).per_hour == 2.70


def test_a_missing_entry_is_unknown_and_named_with_its_file(tmp_path: Path) -> None:
    price = prices.load().price([rental(region="europe-west4", tier=Tier.RESERVED)])
    assert price.per_hour is None
    assert price.basis == (
        f"no price for v6e (reserved) in europe-west4: add an entry to {tmp_path}/config/prices.yaml, "
        "or set the `cost_per_hour` of the target"
    )


def test_a_project_in_another_currency_has_no_listed_prices() -> None:
    price = prices.load().price([rental()], currency="EUR")
    assert price.per_hour is None
    assert "has prices in USD, and `results.currency` is EUR" in price.basis


def test_the_most_expensive_region_counts_and_one_unknown_region_makes_the_price_unknown(tmp_path: Path) -> None:
    write(tmp_path, {**ENTRY, "region": "us-east5", "usd_per_chip_hour": 0.9})
    listed = prices.load()
    assert listed.price([rental(), rental(region="us-east5")]).per_hour == 0.9
    assert listed.price([rental(), rental(region="asia-east1")]).per_hour is None
    assert listed.price([]).per_hour is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"usd_per_chip_hour": -1.0}, r"prices\.yaml:5: `prices\[0\]\.usd_per_chip_hour` must be greater than 0"),
        ({"usd_per_chip_hour": 0}, r"prices\.yaml:5: .* greater than 0"),
        ({"usd_per_chip_hour": float("nan")}, r"prices\.yaml:5: .* finite number|greater than 0"),
        ({"usd_per_chip_hour": float("inf")}, r"prices\.yaml:5: "),
        ({"usd_per_chip_hour": 1e9}, r"prices\.yaml:5: .* less than or equal to 10000"),
        ({"usd_per_chip_hour": True}, r"prices\.yaml:5: "),
        ({"usd_per_chip_hour": "1.2"}, r"prices\.yaml:5: "),
        ({"tier": "cheap"}, r"prices\.yaml:4: .*on_demand"),
        ({"date": "yesterday"}, r"prices\.yaml:6: "),
        ({"source": ""}, r"prices\.yaml:7: "),
        ({"region": "us\x1b[2J"}, r"prices\.yaml:3: "),
        ({"accelerator": "x" * 61}, r"prices\.yaml:2: "),
        ({"currency": "EUR"}, r"prices\.yaml:8: `prices\[0\]\.currency` is an unknown field"),
    ],
)
def test_a_wrong_entry_is_reported_with_its_line(tmp_path: Path, fields: dict[str, object], message: str) -> None:
    write(tmp_path, {**ENTRY, **fields})
    with pytest.raises(ConfigurationError, match=message):
        prices.load()


def test_two_prices_for_the_same_thing_are_reported_with_both_lines(tmp_path: Path) -> None:
    write(tmp_path, ENTRY, {**ENTRY, "usd_per_chip_hour": 0.6})
    with pytest.raises(ConfigurationError, match=r"prices\.yaml:8: .* already has a price at .*prices\.yaml:2"):
        prices.load()


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    file = write(tmp_path, ENTRY)
    file.write_text("#" * 1_000_001)
    with pytest.raises(ConfigurationError, match="larger than 1,000,000 bytes"):
        prices.load()


def test_an_empty_list_of_prices_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path)
    assert prices.load().price([rental()]).per_hour == 0.544
