"""The copy of a notebook has limited sizes and known types, whatever the file contains."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.features.notebooks.fakes.notebook_results import code, display, markdown, notebook, stream
from toolbox.features.notebooks import notebook_extracts
from toolbox.features.notebooks.notebook_extracts import ExtractFault

ODD: list[Any] = [None, 1, "text", [], {}, [1], {"a": 1}]


def read(directory: Path, document: object) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the cells of the copy of a notebook, and the notes."""
    file = directory / "n.ipynb"
    file.write_text(document if isinstance(document, str) else json.dumps(document))
    extract, notes = notebook_extracts.read(file)
    return extract["cells"], notes


def test_sources_and_outputs_are_kept_without_metadata(tmp_path: Path) -> None:
    cell = code("1", stream("out"), count=3, id='"><script>', metadata={"tags": ["x"]})
    cells, notes = read(tmp_path, notebook(markdown(["# a\n", "b"]), cell))
    assert cells[0]["source"] == "# a\nb"
    assert (cells[1]["metadata"], cells[1]["execution_count"], "id" in cells[1]) == ({}, 3, False)
    assert cells[1]["outputs"] == [stream("out")]
    assert notes == []


@pytest.mark.parametrize(
    "document", ["{", "[]", "{}", '{"nbformat": 3, "cells": []}', '{"nbformat": 4}', "[" * 100_000]
)
def test_what_is_not_a_notebook_is_a_fault(tmp_path: Path, document: str) -> None:
    with pytest.raises(ExtractFault):
        read(tmp_path, document)


def test_a_notebook_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "n.ipynb").open("wb") as stream:
        stream.truncate(notebook_extracts.LARGEST_NOTEBOOK + 1)
    with pytest.raises(ExtractFault, match="more than"):
        notebook_extracts.read(tmp_path / "n.ipynb")


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
def test_parts_of_any_type_are_copied(tmp_path: Path, odd: Any) -> None:
    kinds = ("stream", "error", "display_data", odd)
    outputs = [
        {"output_type": kind, **dict.fromkeys(("text", "data", "ename", "evalue", "traceback", "name"), odd)}
        for kind in kinds
    ]
    cells = [odd, code(odd, *outputs, count=odd), markdown(odd, attachments=odd), {"cell_type": odd, "outputs": odd}]
    copied, _ = read(tmp_path, {"nbformat": 4, "metadata": odd, "cells": cells})
    assert all(isinstance(cell["source"], str) for cell in copied)


def test_a_long_output_keeps_its_ends(tmp_path: Path) -> None:
    cells, notes = read(tmp_path, notebook(code("1", stream("begin" + "x" * 1_000_000 + "end"))))
    text = cells[0]["outputs"][0]["text"]
    assert text.startswith("begin")
    assert text.endswith("end")
    assert len(text) < 110_000
    assert notes == ["1 sources or outputs are too long to be shown completely."]


def test_many_outputs_and_cells_are_cut_with_a_note(tmp_path: Path) -> None:
    many = notebook(code("1", *[stream("x")] * 600), *[markdown("x")] * 10_000)
    cells, notes = read(tmp_path, many)
    assert (len(cells), len(cells[0]["outputs"])) == (2000, 500)
    assert notes == [
        "A cell has 600 outputs: only the first 500 are shown here.",
        "The last 8001 cells are not shown here.",
    ]


def test_all_texts_together_are_limited(tmp_path: Path) -> None:
    cells, _ = read(tmp_path, notebook(*[code("1", stream("x" * 99_000))] * 400))
    assert sum(len(cell["outputs"][0]["text"]) for cell in cells) < 13 * 2**20


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        ({"text_html": "<b>x</b>", "text_plain": "y"}, {"text/html": "<b>x</b>"}),
        ({"text_html": "<script>1</script>", "text_plain": "y"}, {"text/plain": "y"}),
        ({"image_png": "AAAA", "text_plain": "y"}, {"image/png": "AAAA"}),
        ({"application_javascript": "1"}, {"text/plain": "[an output that is not shown here: application/javascript]"}),
        ({"image_png": "A" * 6 * 2**20, "text_plain": "y"}, {"text/plain": "y"}),
    ],
)
def test_the_best_safe_representation_is_shown(tmp_path: Path, data: dict[str, str], shown: dict[str, str]) -> None:
    cells, _ = read(tmp_path, notebook(code("1", display(**data))))
    assert cells[0]["outputs"][0]["data"] == shown
