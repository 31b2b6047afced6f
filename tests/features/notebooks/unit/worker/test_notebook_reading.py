"""The file of a notebook is checked before anything is executed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from toolbox.features.notebooks.worker import notebook_reading
from toolbox.features.notebooks.worker.notebook_reading import NotebookFile, NotebookFileError
from toolbox.features.notebooks.worker.notebook_results import Fault


def cell(**fields: Any) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "id": "a",
        "source": "1",
        "metadata": {},
        "outputs": [],
        "execution_count": None,
    } | fields


def document(**fields: Any) -> dict[str, Any]:
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [cell()]} | fields


def read(tmp_path: Path, content: Any) -> NotebookFile:
    path = tmp_path / "test.ipynb"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return notebook_reading.read(path, tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b" \n", "the file is empty"),
        (b"x = 1", "the file is not JSON"),
        (b"\xff\xfe", "the file is not UTF-8"),
        (b"[1, 2]", "must contain a JSON object"),
        (b"[" * 100_000, "nested deeper than 100 levels"),
        (b'{"a":' * 200 + b"1" + b"}" * 200, "nested deeper than 100 levels"),
        ({}, "`nbformat` must be a number"),
        (document(nbformat="4"), "`nbformat` must be a number"),
        (document(nbformat=True), "`nbformat` must be a number"),
        (document(nbformat=5), "has format 5, but only format 4"),
        (document(nbformat=10**4000), "has format 10000"),
        (document(nbformat_minor="x"), "no valid `nbformat_minor`"),
        (document(nbformat_minor=10**9), "no valid `nbformat_minor`"),
        (document(cells={}), "`cells` is not a list"),
        (document(cells=[1]), "`cells` is not a list"),
        (document(metadata=[]), "`metadata` is not an object"),
        (document(cells=[{}]), "invalid"),
        (document(cells=[cell(metadata=[])]), "invalid"),
        (document(cells=[cell(metadata={"tags": "skip"})]), r"cells\[0\].metadata.tags"),
        (document(cells=[cell(metadata={"tags": [1]})]), r"cells\[0\].metadata.tags"),
        (document(cells=[cell(id="../../etc/passwd")]), "invalid"),
        (document(cells=[cell(source=3)]), "invalid"),
        (document(cells=[cell(outputs=[{"output_type": "x"}])]), "invalid"),
        (document(metadata={"kernelspec": 3}), "invalid"),
    ],
)
def test_a_file_that_is_not_a_valid_notebook_says_why(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(NotebookFileError, match=message) as caught:
        read(tmp_path, content)
    assert caught.value.fault is Fault.INVALID_NOTEBOOK
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "old",
    [
        {"nbformat": 3, "nbformat_minor": 0, "worksheets": [], "metadata": {}},
        {"nbformat": 2, "worksheets": []},
        {"worksheets": []},
    ],
)
def test_an_old_format_names_the_command_that_converts_it(tmp_path: Path, old: dict[str, Any]) -> None:
    with pytest.raises(NotebookFileError, match="jupyter nbconvert --to notebook --nbformat 4") as caught:
        read(tmp_path, old)
    assert caught.value.fault is Fault.OLD_FORMAT


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "test.ipynb"
    path.touch()
    os.truncate(path, notebook_reading.MAX_BYTES + 1)
    with pytest.raises(NotebookFileError, match="larger than 64 MiB"):
        notebook_reading.read(path, tmp_path)


def test_only_regular_files_within_the_sources_are_read(tmp_path: Path) -> None:
    (tmp_path / "sources").mkdir()
    (tmp_path / "outside.ipynb").write_text(json.dumps(document()), encoding="utf-8")
    (tmp_path / "sources" / "link.ipynb").symlink_to(tmp_path / "outside.ipynb")
    os.mkfifo(tmp_path / "sources" / "pipe.ipynb")
    (tmp_path / "sources" / "loop.ipynb").symlink_to("loop.ipynb")
    for name, message in {
        "../outside.ipynb": "leads out",
        "link.ipynb": "leads out",
        "pipe.ipynb": "not a regular file",
        "loop.ipynb": "cannot be read",
        "missing.ipynb": "does not exist",
        "a\0b.ipynb": "cannot be read",
        "x" * 5000: "cannot be read",
    }.items():
        with pytest.raises(NotebookFileError, match=message):
            notebook_reading.read(tmp_path / "sources" / name, tmp_path / "sources")


def test_ids_that_are_missing_or_not_unique_are_renewed(tmp_path: Path) -> None:
    missing = cell()
    del missing["id"]
    file = read(tmp_path, document(cells=[cell(), cell(), missing]))
    assert len({cell.id for cell in file.code_cells}) == 3
    assert file.code_cells[0].id == "a"


def test_a_file_of_format_4_0_has_no_ids(tmp_path: Path) -> None:
    old = cell(source=["x = 1\n", "x"])
    del old["id"]
    file = read(tmp_path, document(nbformat_minor=0, cells=[old]))
    assert not file.has_ids
    assert file.code_cells[0].source == "x = 1\nx"


def test_ids_in_a_file_of_format_4_4_are_kept(tmp_path: Path) -> None:
    file = read(tmp_path, document(nbformat_minor=4, cells=[cell(id="load"), {**cell(), "id": "train"}]))
    assert file.has_ids
    assert [cell.id for cell in file.code_cells] == ["load", "train"]


def test_a_newer_minor_format_is_read(tmp_path: Path) -> None:
    assert read(tmp_path, document(nbformat_minor=9)).notebook.nbformat_minor == 5


def test_a_byte_order_mark_is_allowed(tmp_path: Path) -> None:
    assert read(tmp_path, b"\xef\xbb\xbf" + json.dumps(document()).encode()).code_cells


@pytest.mark.parametrize(
    ("metadata", "language"),
    [
        ({}, ""),
        ({"kernelspec": {"name": "ir", "display_name": "R", "language": "R"}}, "r"),
        (
            {"language_info": {"name": "python"}, "kernelspec": {"name": "x", "display_name": "x", "language": "R"}},
            "python",
        ),
    ],
)
def test_the_language_is_the_one_that_the_metadata_name(
    tmp_path: Path, metadata: dict[str, Any], language: str
) -> None:
    assert read(tmp_path, document(metadata=metadata)).language == language


@pytest.mark.parametrize(
    ("name", "plain"), [("Python3", "python"), ("ipython 3.11", "python"), ("R", "r"), ("C++17", "c++")]
)
def test_languages_are_compared_without_their_version(name: str, plain: str) -> None:
    assert notebook_reading.comparable_language(name) == plain


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        ({"manual": "mount\nthe \x1b[1mdata"}, "mount the data"),
        ({"manual": True}, "the notebook is marked as manual"),
        ({"manual": False}, None),
        ({"manual": ""}, None),
        ({"manual": 3}, None),
        ([], None),
        ({}, None),
    ],
)
def test_a_notebook_can_say_that_a_person_is_needed(tmp_path: Path, block: Any, reason: str | None) -> None:
    assert read(tmp_path, document(metadata={"topgallant": block})).manual == reason
