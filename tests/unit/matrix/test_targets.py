"""The block `targets` describes targets by the fields of their backends; the local machine needs no description."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.config.conftest import Load
from tests.unit.config.conftest import load as load  # noqa: PLC0414  # imports the fixture
from toolbox.ground.model.errors import ConfigurationError
from toolbox.ground.model.prices import Price
from toolbox.ground.system import places
from toolbox.matrix import targets
from toolbox.matrix.targets import PlannedTarget


def test_local_is_always_a_target(load: Load) -> None:
    found = targets.read(load("a: 1\n"))
    assert [(target.name, target.backend, target.capacity) for target in found.values()] == [("local", "local", {})]
    assert targets.read(load("targets: null\n")).keys() == {"local"}


def test_a_described_target_has_its_backend_its_labels_and_its_capacity(load: Load) -> None:
    text = "targets: {far: {backend: ssh, host: far.example, labels: [gpu, big], capacity: {jobs: 2, gpu: 8}}}\n"
    far = targets.read(load(text))["far"]
    assert (far.backend, far.labels, far.capacity) == ("ssh", ("gpu", "big"), {"jobs": 2, "gpu": 8})
    assert "far.example" in str(far.address)


def test_a_target_may_have_an_accelerator_and_a_price(load: Load) -> None:
    text = "targets: {tpu: {backend: ssh, host: tpu.example, accelerator: v6e-1, cost_per_hour: 1.35}}\n"
    kept = targets.read(load(text))["tpu"].as_json()
    assert (kept["backend"], kept["accelerator"], kept["cost_per_hour"]) == ("ssh", "v6e-1", 1.35)
    assert kept["address"] == targets.read(load(text))["tpu"].address


@pytest.mark.parametrize("cost", ["-1", "free", ".inf", ".nan", "1000001"])
def test_a_price_is_a_number_from_0_to_a_million(load: Load, cost: str) -> None:
    with pytest.raises(ConfigurationError, match="cost_per_hour"):
        targets.read(load(f"targets: {{here: {{cost_per_hour: {cost}}}}}\n"))


RENTING = """
from typing import ClassVar
from pydantic import BaseModel
from toolbox.ground.model.prices import Rental, Tier

class Target(BaseModel):
    zone: str = "us-central1-b"
    keeps_attempts: ClassVar[bool] = False
    rents_per_attempt: ClassVar[bool] = True
    def open(self, context): ...
    def rentals(self):
        return [Rental.of_tpu("v6e-8", zone=self.zone, tier=Tier.SPOT)]
"""


@pytest.fixture
def renting(tmp_path: Path) -> Iterator[None]:
    """Work in a workspace with the backend `renting`, whose targets rent TPUs."""
    (tmp_path / "backends").mkdir()
    (tmp_path / "backends/renting.py").write_text(RENTING)
    with places.pinned(tmp_path):
        yield


def test_a_target_without_a_price_has_the_reason(load: Load) -> None:
    price = targets.read(load("a: 1\n"))["local"].price
    assert (price.per_hour, price.basis) == (None, "the target has no `cost_per_hour`")


@pytest.mark.usefixtures("renting")
def test_a_target_that_rents_accelerators_has_a_listed_price(load: Load) -> None:
    tpu = targets.read(load("targets: {tpu: {backend: renting}}\n"))["tpu"]
    assert tpu.price.per_hour == pytest.approx(8 * 0.544)
    assert (tpu.accelerator, tpu.shares_price) == ("v6e-8", False)


@pytest.mark.usefixtures("renting")
def test_the_cost_per_hour_of_a_target_wins_over_listed_prices(load: Load) -> None:
    tpu = targets.read(load("a: 1\ntargets: {tpu: {backend: renting, zone: asia-east1-a, cost_per_hour: 0}}\n"))["tpu"]
    assert tpu.price.per_hour == 0.0
    assert tpu.price.basis.endswith("/config.yaml:2: `cost_per_hour`")


@pytest.mark.usefixtures("renting")
def test_a_resumed_run_keeps_the_prices_with_which_it_began(load: Load) -> None:
    frozen = {"tpu": Price(9.0, "as it was")}
    found = targets.read(load("targets: {tpu: {backend: renting}}\n"), frozen)
    assert found["tpu"].price == frozen["tpu"]


@pytest.mark.usefixtures("renting")
def test_a_zone_that_does_not_exist_is_reported_with_its_line(load: Load) -> None:
    with pytest.raises(ConfigurationError, match=r"config\.yaml:2: the target `tpu`: 'here' is not a zone"):
        targets.read(load("a: 1\ntargets: {tpu: {backend: renting, zone: here}}\n"))


def test_a_target_of_a_configuration_in_another_currency_has_no_listed_price(load: Load, renting: None) -> None:
    del renting
    found = targets.read(load("results: {currency: EUR}\ntargets: {tpu: {backend: renting}}\n"))
    assert found["tpu"].price.per_hour is None
    assert "`results.currency` is EUR" in found["tpu"].price.basis


def test_the_local_machine_may_be_described_like_another_target(load: Load) -> None:
    found = targets.read(load("targets: {local: {capacity: {jobs: 4}}, here: {labels: [x]}}\n"))
    assert [(target.name, target.backend) for target in found.values()] == [("local", "local"), ("here", "local")]
    assert found["local"].capacity == {"jobs": 4}
    assert found["here"].address is None


def test_references_in_a_target_are_resolved(load: Load) -> None:
    found = targets.read(load("machine: {name: far.example}\ntargets: {far: {backend: ssh, host: '@machine.name'}}\n"))
    assert "far.example" in str(found["far"].address)


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("{far: {backend: shh}}", r"c\w+\.yaml:2: the target `far`: unknown backend `shh`: did you mean ssh"),
        ("{far: {host: x}}", r"c\w+\.yaml:2: the target `far`: backend `local`: host: Extra inputs"),
        ("{far: {backend: ssh, hots: x}}", "the target `far`: backend `ssh`: hots: Extra inputs"),
        ("{far: {capacity: {jobs: 0}}}", "`jobs` must be at least 1"),
        ("[far]", r"c\w+\.yaml:2: `targets` must be a mapping, not \['far'\]"),
        ("{far: null}", r"c\w+\.yaml:2: `targets.far` must be a mapping, not null"),
    ],
)
def test_a_wrong_target_is_reported_with_its_line(load: Load, block: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        targets.read(load(f"a: 1\ntargets: {block}\n"))


@pytest.mark.parametrize(
    ("needs", "fits"),
    [
        ({}, True),
        ({"gpu": 8}, True),
        ({"gpu": 9}, False),
        ({"gpu": 1, "licence": 99}, True),
        ({"gpu": 9, "x": 1}, False),
    ],
)
def test_the_capacity_of_a_target_limits_only_the_resources_that_it_names(needs: dict[str, int], fits: bool) -> None:
    nothing: Any = None
    assert PlannedTarget("far", "ssh", nothing, capacity={"gpu": 8}).can_hold(needs) is fits
