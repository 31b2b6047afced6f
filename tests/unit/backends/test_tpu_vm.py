"""The description of a TPU target; `tests/live/test_tpu_cells.py` runs cells on TPUs."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from toolbox.backends import tpu_vm
from toolbox.backends.tpu_vm import Target
from toolbox.model.workloads import Timeouts, Workload
from toolbox.tpu import tpu_description

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


@pytest.mark.parametrize("run", [None, 3500.0])
def test_a_cell_that_may_outlive_its_tpu_is_refused(run: float | None) -> None:
    target = Target.model_validate({**DESCRIPTION, "ttl": 3600})
    with pytest.raises(ValueError, match=r"raise `ttl`, or lower the limit"):
        target.accept(Workload(("true",), timeouts=Timeouts(wait=600, run=run)))
    target.accept(Workload(("true",), timeouts=Timeouts(wait=600, run=2900)))


@pytest.mark.parametrize("run", ["20261123-050000-x7k2", "Of_a.Person", "äöü", "x" * 200])
def test_the_name_of_a_tpu_is_valid_and_depends_on_the_run_and_the_attempt(run: str) -> None:
    name = tpu_vm.tpu_name(run, "cell-1")
    assert tpu_description.name_fault(name, slices=2) == ""
    assert name == tpu_vm.tpu_name(run, "cell-1")
    assert len({name, tpu_vm.tpu_name(run, "cell-2"), tpu_vm.tpu_name(f"{run}x", "cell-1")}) == 3
