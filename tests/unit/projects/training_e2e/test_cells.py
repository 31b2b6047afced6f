"""The cells of the project are valid and complete with each preset."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from toolbox.matrix.plan import Plan
from toolbox.matrix.relations import Relations
from toolbox.orchestration import request
from toolbox.orchestration.request import RunRequest

PRESETS: list[Sequence[str]] = [
    (),
    ("smoke",),
    ("small",),
    ("large",),
    ("nightly",),
    ("ssh",),
    ("smoke", "ssh"),
]
each_preset = pytest.mark.parametrize("presets", PRESETS, ids=lambda names: ",".join(names) or "none")


def planned(*presets: str, **overrides: Any) -> Plan:
    """Return the plan of the project."""
    plan = request.load(RunRequest("training_e2e", presets, overrides=overrides)).plan
    assert plan is not None
    return plan


def test_smoke_has_two_models_and_their_reference_cells() -> None:
    assert [cell.name for cell in planned("smoke").cells] == [
        "model=tiny,batch=8,precision=float32",
        "model=tiny,batch=8,precision=float64",
        "model=tiny,batch=16,precision=float32",
        "model=tiny,batch=16,precision=float64",
        "model=narrow,batch=8,precision=float32",
        "model=narrow,batch=8,precision=float64",
    ]


@each_preset
def test_the_workload_accepts_the_settings_of_every_cell(presets: Sequence[str], tmp_path: Path) -> None:
    from train_settings import read_settings

    for cell in planned(*presets).cells:
        file = tmp_path / "settings.json"
        file.write_text(cell.workload.text_files["settings.json"])
        found = dataclasses.asdict(read_settings(file))
        assert {name: found[name] for name in cell.settings["model"]} == cell.settings["model"]
        assert (found["batch"], found["precision"]) == tuple(cell.settings.values())[1:]


@each_preset
def test_every_relation_has_a_reference_cell(presets: Sequence[str]) -> None:
    plan = planned(*presets)
    relations = Relations(plan.combinations)
    compared = [
        (cell, relations.other(cell.settings, check.to))
        for cell in plan.cells
        for check in cell.expectations.checks
        if check.to is not None
    ]
    assert len(compared) >= len(plan.cells) / 2
    assert [cell.name for cell, other in compared if other is None or other.id == cell.id] == []


@each_preset
def test_every_entry_of_the_matrix_has_an_effect_in_each_preset(presets: Sequence[str]) -> None:
    without = [note for note in planned(*presets).notes if "have no bounds yet" not in note]  # not measured yet
    assert without == []


def test_ssh_runs_the_same_cells_on_two_machines_one_at_a_time_on_each() -> None:
    here, there = planned("smoke"), planned("smoke", "ssh")
    assert [cell.id for cell in there.cells] == [cell.id for cell in here.cells]
    assert {cell.targets for cell in here.cells} == {("local",)}
    assert {cell.targets for cell in there.cells} == {("ssh-1", "ssh-2")}
    assert {name: dict(target.capacity) for name, target in there.targets.items()} == {
        "ssh-1": {"jobs": 1},
        "ssh-2": {"jobs": 1},
    }


def test_an_override_can_set_the_host() -> None:
    plan = planned("ssh", **{"targets.ssh-2.host": "tpu-7", "targets.ssh-2.user": "ci", "training.python": "/opt/py"})
    addresses = [target.address for target in plan.targets.values()]
    assert addresses == ["topgallant-1", "ci@tpu-7"]
    assert {cell.workload.command[0] for cell in plan.cells} == {"/opt/py"}
