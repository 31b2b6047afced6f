"""The cells of the project are valid and complete with the presets for clusters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.unit.projects.training_e2e import conftest, test_cells

PRESETS: list[Sequence[str]] = [("smoke", "kubernetes"), ("gke_tpu_multislice",)]


@pytest.mark.parametrize("presets", PRESETS, ids=",".join)
def test_the_cells_of_a_preset_are_valid_and_complete(presets: Sequence[str], tmp_path: Path) -> None:
    assert conftest.WORKLOAD.is_dir(), "the modules of the workload can be imported"
    test_cells.test_the_workload_accepts_the_settings_of_every_cell(presets, tmp_path)
    test_cells.test_every_relation_has_a_reference_cell(presets)
    test_cells.test_every_entry_of_the_matrix_has_an_effect_in_each_preset(presets)
