"""The notebooks of a configuration are measured as a whole, and cell by cell where the configuration says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolbox.features.notebooks.notebook_metrics import MeasuredNotebook, metrics
from toolbox.matrix.attempt_judgement import NamedSource


def test_time_and_memory_of_each_notebook_are_metrics_of_its_runtimes() -> None:
    train, plot = MeasuredNotebook("train"), MeasuredNotebook("plot")
    found = metrics({"torch": [train, plot], "jax": [train], "empty": []})
    assert list(found) == ["train.seconds", "train.peak_memory", "plot.seconds", "plot.peak_memory"]
    assert found["train.seconds"] == {
        "source": "notebook", "notebook": "train", "figure": "seconds", "unit": "s", "direction": "lower",
        "when": {"runtime": ["torch", "jax"]},
    }  # fmt: skip
    assert found["plot.peak_memory"]["when"] == {"runtime": ["torch"]}


def test_each_cell_is_measured_by_its_id_or_its_number(tmp_path: Path) -> None:
    file = notebook(
        tmp_path, code("x = 1", id="load"), {"cell_type": "markdown", "source": "# A"}, code(["y\n"]), code(" ")
    )
    found = metrics({"torch": [MeasuredNotebook("train", file)]})
    assert {name: spec.get("cell") for name, spec in found.items() if name.endswith("seconds")} == {
        "train.seconds": None,
        "train.load.seconds": "load",
        "train.cell_2.seconds": 2,
    }


def test_the_metrics_are_valid_in_a_configuration(tmp_path: Path) -> None:
    file = notebook(tmp_path, code("x = 1", id="load"), code("y"))
    for spec in metrics({"torch": [MeasuredNotebook("train", file)]}).values():
        spec.pop("when")
        assert NamedSource.parse(spec).unit in {"s", "bytes"}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "is not JSON"),
        ("[]", "has no `nbformat`"),
        ('{"nbformat": 3, "nbformat_minor": 0}', "has the format 3, not 4: convert it"),
        ('{"nbformat": 4, "nbformat_minor": 5, "cells": [5]}', "has no list of cells"),
        ("[" * 100_000, "is not JSON"),
        ('{"nbformat": ' + "9" * 10_000 + "}", "has no `nbformat`"),
    ],
)
def test_a_file_without_cells_is_refused_with_its_path(tmp_path: Path, content: str, reason: str) -> None:
    (tmp_path / "a.ipynb").write_text(content)
    with pytest.raises(ValueError, match=rf"a\.ipynb .*{reason}"):
        metrics({"torch": [MeasuredNotebook("train", tmp_path / "a.ipynb")]})


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"gone\.ipynb does not exist"):
        metrics({"torch": [MeasuredNotebook("train", tmp_path / "gone.ipynb")]})


def code(source: str | list[str], **fields: Any) -> dict[str, Any]:
    return {"cell_type": "code", "source": source, "metadata": {}, "outputs": [], "execution_count": None, **fields}


def notebook(directory: Path, *cells: dict[str, Any]) -> Path:
    file = directory / "a.ipynb"
    file.write_text(json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}))
    return file
