"""The description of a TPU target; `tests/features/tpu/live/test_tpu_cells.py` runs cells on TPUs."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from toolbox.features.tpu import tpu_description
from toolbox.features.tpu.backends import tpu_vm
from toolbox.features.tpu.backends.tpu_vm import Target
from toolbox.ground.extensions.protocols import PricedTarget
from toolbox.ground.model.prices import Rental, Tier
from toolbox.ground.model.workloads import Timeouts, Workload

DESCRIPTION = {
    "project": "my-project",
    "zone": "us-central1-a",
    "accelerator_type": "v5litepod-16",
    "runtime_version": "v2-alpha-tpuv5-lite",
}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"workers": "4"}, "there is no worker 4: the TPU has 4 workers"),
        ({"workers": "first"}, "selects no workers"),
        ({"selection": "0"}, "selection"),
        ({"reuse": "always"}, "reuse"),
        ({"python": ""}, "python"),
        ({"directory": "relative"}, "directory"),
        ({"slices": 0}, "slices"),
    ],
)
def test_an_invalid_target_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Target.model_validate({**DESCRIPTION, **fields})


def test_workers_of_later_slices_can_be_selected() -> None:
    assert Target.model_validate({**DESCRIPTION, "slices": 2, "workers": "0,7"}).selection == "0,7"


@pytest.mark.parametrize(
    ("fields", "rental"),
    [
        ({}, Rental("v5e", 16, "us-central1", Tier.ON_DEMAND, "v5litepod-16")),
        ({"spot": True}, Rental("v5e", 16, "us-central1", Tier.SPOT, "v5litepod-16")),
        ({"preemptible": True}, Rental("v5e", 16, "us-central1", Tier.SPOT, "v5litepod-16")),
        ({"reserved": True}, Rental("v5e", 16, "us-central1", Tier.RESERVED, "v5litepod-16")),
        (
            {"accelerator_type": "v5p-8", "slices": 2},
            Rental("v5p", 8, "us-central1", Tier.ON_DEMAND, "2x v5p-8"),
        ),
        (
            {"accelerator_type": None, "type": "v6e", "topology": "2x4"},
            Rental("v6e", 8, "us-central1", Tier.ON_DEMAND, "v6e-8"),
        ),
    ],
)
def test_a_target_tells_what_it_rents(fields: dict[str, Any], rental: Rental) -> None:
    assert Target.model_validate({**DESCRIPTION, **fields}).rentals() == [rental]


def test_zones_of_one_region_are_one_rental_and_other_regions_have_their_own() -> None:
    zones = ["us-central1-a", "us-central1-b", "us-east5-b"]
    target = Target.model_validate({**DESCRIPTION, "zone": zones})
    assert [rental.region for rental in target.rentals()] == ["us-central1", "us-east5"]


def test_only_a_tpu_of_the_run_is_shared_by_cells() -> None:
    targets = [Target.model_validate({**DESCRIPTION, "reuse": reuse}) for reuse in ("cell", "run")]
    assert [target.rents_per_attempt for target in targets] == [True, False]
    assert all(isinstance(target, PricedTarget) for target in targets)


@pytest.mark.parametrize("run", [None, 3500.0])
def test_a_cell_that_may_outlive_its_tpu_is_refused(run: float | None) -> None:
    target = Target.model_validate({**DESCRIPTION, "ttl": 3600})
    with pytest.raises(ValueError, match=r"raise `ttl`, or lower the timeouts"):
        target.accept(Workload(("true",), timeouts=Timeouts(wait=600, run=run)))
    target.accept(Workload(("true",), timeouts=Timeouts(wait=600, run=2900)))


@pytest.mark.parametrize("run", ["20261123-050000-x7k2", "Of_a.Person", "äöü", "x" * 200])
def test_the_name_of_a_tpu_is_valid_and_depends_on_the_run_and_the_attempt(run: str) -> None:
    name = tpu_vm.tpu_name(run, "cell-1")
    assert tpu_description.name_fault(name, slices=2) == ""
    assert name == tpu_vm.tpu_name(run, "cell-1")
    assert len({name, tpu_vm.tpu_name(run, "cell-2"), tpu_vm.tpu_name(f"{run}x", "cell-1")}) == 3


@pytest.mark.parametrize(
    "fields", [{"slices": 2}, {"runtime_version": "v3"}, {"workers": "0"}, {"startup_script": "pip install jax"}]
)
def test_targets_that_may_give_different_results_have_different_identities(fields: dict[str, Any]) -> None:
    one, other = (Target.model_validate({**DESCRIPTION, **more}) for more in ({"zone": "us-west4-a"}, fields))
    usual, work = Target.model_validate(DESCRIPTION), Workload(("true",))
    assert usual.identity("a", work) == one.identity("b", work) != other.identity("a", work)
