"""A notebook is clean if it has no outputs, no execution counts, no secrets, and a valid current format."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.features.notebooks.unit.notebook_documents import code, document, executed, write
from toolbox.features.notebooks import clean_notebooks

MARKDOWN = {"cell_type": "markdown", "source": "# Title", "metadata": {}}
TOKEN = "gh" + "p_aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bD1fG3hJ5"
CHECKED = ("nbval-check-output",)


def faults(directory: Path, *cells: dict[str, Any], keeps_outputs: bool = False, **fields: Any) -> list[str]:
    file = write(directory / "a.ipynb", *cells, **fields)
    return [str(fault) for fault in clean_notebooks.faults(file, keeps_outputs=keeps_outputs)]


def test_a_clean_notebook_has_no_faults(tmp_path: Path) -> None:
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3"}, "language_info": {"name": "python"}}
    assert faults(tmp_path, MARKDOWN, code(["x = 1\n", "y = 2"]), code("", tags=("skip",)), metadata=metadata) == []


def test_outputs_and_counts_are_faults_of_their_cells(tmp_path: Path) -> None:
    assert faults(tmp_path, code(), MARKDOWN, executed(1)) == [
        "code cell 2: has outputs: clear them before you commit",
        "code cell 2: has an execution count: clear it before you commit",
    ]


@pytest.mark.parametrize("count", [2, None])
def test_a_cell_whose_output_is_compared_keeps_it(tmp_path: Path, count: int | None) -> None:
    assert faults(tmp_path, code(), executed(count, tags=CHECKED)) == []


def test_a_kept_output_is_from_an_execution_from_top_to_bottom(tmp_path: Path) -> None:
    assert faults(tmp_path, code(), executed(7, tags=CHECKED)) == [
        "code cell 2: has the execution count 7, not 2: execute the notebook from top to bottom in a new kernel"
    ]


def test_a_notebook_that_keeps_its_outputs_was_executed_from_top_to_bottom(tmp_path: Path) -> None:
    skipped, empty = code(tags=("skip-execution",)), code(" ")
    cells = (executed(1), MARKDOWN, skipped, empty, executed(2))
    assert faults(tmp_path, *cells, keeps_outputs=True) == []
    text = "execute the notebook from top to bottom in a new kernel"
    assert faults(tmp_path, executed(2), executed(1), code(), keeps_outputs=True) == [
        f"code cell 1: has the execution count 2, not 1: {text}",
        f"code cell 2: has the execution count 1, not 2: {text}",
        f"code cell 3: has no execution count, not 3: {text}",
    ]
    assert faults(tmp_path, executed(None, tags=("skip",)), keeps_outputs=True) == [
        "code cell 1: has outputs, although the cell is empty or a tag skips it"
    ]


def test_secrets_are_found_in_sources_outputs_and_metadata(tmp_path: Path) -> None:
    result = {"output_type": "execute_result", "metadata": {}, "execution_count": 1}
    html = {
        **result,
        "data": {"text/html": ["<b>\n", f"{TOKEN}</b>"], "application/json": {"a": [{"token": "abcdef123456"}]}},
    }
    found = faults(
        tmp_path,
        code(["import x\n", f"x.login('{TOKEN}')"], execution_count=1, outputs=[html]),
        {**MARKDOWN, "source": f"Use {TOKEN}."},
        code(metadata={"note": TOKEN}, execution_count=2),
        metadata={"colab": {"password": "abcdef123456"}},
        keeps_outputs=True,
    )
    assert found == [
        "the metadata contains a password or key as text",
        "code cell 1: line 2 contains a token of GitHub",
        "code cell 1: output 1 contains a token of GitHub",
        "code cell 1: output 1 contains a password or key as text",
        "markdown cell at position 2: line 1 contains a token of GitHub",
        "code cell 2: the metadata contains a token of GitHub",
    ]
    assert "aB3" not in str(found)
    assert "abcdef" not in str(found)


def test_a_secret_after_a_line_break_of_an_output_is_found(tmp_path: Path) -> None:
    assert faults(tmp_path, executed(1, f"the token\n{TOKEN}"), keeps_outputs=True) == [
        "code cell 1: output 1 contains a token of GitHub"
    ]


def test_images_are_not_searched_for_secrets(tmp_path: Path) -> None:
    data = {"output_type": "display_data", "metadata": {}, "data": {"image/png": f"iVBOR/{TOKEN}"}}
    assert faults(tmp_path, code(execution_count=1, outputs=[data]), keeps_outputs=True) == []


def test_what_an_execution_leaves_in_the_metadata_is_a_fault(tmp_path: Path) -> None:
    cell = code(metadata={"execution": {"shell.execute_reply": "2026-01-01"}})
    assert faults(tmp_path, cell, metadata={"widgets": {}, "papermill": {}}) == [
        "the metadata contains `papermill`, which an execution has added",
        "the metadata contains `widgets`, which an execution has added",
        "code cell 1: the metadata contains `execution`, which an execution has added",
    ]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"nbformat": 3}, "has the format 3, not 4: convert it with `jupyter nbconvert --to notebook --inplace`"),
        ({"nbformat": 5}, "has the format 5, not 4: not known"),
        ({"nbformat": "4"}, "is not a notebook: it has no `nbformat`"),
        ({"nbformat": None}, "is not a notebook: it has no `nbformat`"),
        ({"nbformat_minor": None}, "has the format 4, not 4"),
        ({"nbformat_minor": 4, "cells": [code(id="x")]}, "has the format 4.4, not 4.5: set `nbformat_minor` to 5"),
        (
            {"nbformat_minor": 4, "cells": []},
            "has the format 4.4, not 4.5: convert it with `python3 -c 'import nbformat",
        ),
        ({"cells": {}}, "is not a notebook: it has no list of cells"),
        ({"cells": [None]}, "is not a notebook: it has no list of cells"),
        ({"metadata": []}, "metadata is not valid in the format 4.5"),
        ({"cells": [{"cell_type": "code"}]}, "cells.0 is not valid in the format 4.5"),
        ({"cells": [code()]}, "cells.0 is not valid in the format 4.5"),
        ({"cells": [{**code(), "id": "a b"}]}, "cells.0.id is not valid in the format 4.5"),
        ({"surprise": 1}, "the notebook is not valid in the format 4.5"),
    ],
)
def test_another_format_is_a_fault(tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    assert faults(tmp_path, **fields)[0].startswith(message)


def test_the_command_in_the_message_converts_a_notebook(tmp_path: Path) -> None:
    (message,) = faults(tmp_path, nbformat_minor=4, cells=[])
    command = shlex.split(message.partition("`")[2].rstrip("`"))
    subprocess.run([sys.executable, *command[1:-1], tmp_path / "a.ipynb"], check=True)
    assert clean_notebooks.faults(tmp_path / "a.ipynb") == []


def test_an_id_that_two_cells_have_is_a_fault(tmp_path: Path) -> None:
    assert faults(tmp_path, code(id="x"), code(id="x")) == ["code cell 2: has the id of an earlier cell"]


@pytest.mark.parametrize(
    "content", ["", "not json", "[]", "null", "[" * 100_000, '{"nbformat": 4, "x": ' + "9" * 10_000 + "}", "\ud800"]
)
def test_a_file_that_is_no_notebook_is_a_fault(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.ipynb").write_text(content, errors="surrogatepass")
    (fault,) = clean_notebooks.faults(tmp_path / "a.ipynb")
    assert str(fault).startswith(("is not JSON", "is not a notebook", "has the format"))


def test_a_file_that_cannot_be_read_is_a_fault(tmp_path: Path) -> None:
    (fault,) = clean_notebooks.faults(tmp_path)
    assert str(fault) == "is not a regular file"
    (fault,) = clean_notebooks.faults(tmp_path / "gone.ipynb")
    assert str(fault) == "does not exist"


def test_a_deeply_nested_notebook_is_judged(tmp_path: Path) -> None:
    deep: Any = TOKEN
    for _ in range(400):
        deep = [deep]
    assert "the metadata contains a token of GitHub" in faults(tmp_path, metadata={"deep": deep})


def test_messages_have_no_terminal_codes_of_the_notebook(tmp_path: Path) -> None:
    content = document(code(cell_type="\x1b[31m"), metadata={"\x1b[31m": TOKEN, "kernelspec": {"\x1b]0;x\x07": 1}})
    (tmp_path / "a.ipynb").write_text(json.dumps(content))
    for fault in clean_notebooks.faults(tmp_path / "a.ipynb"):
        assert str(fault).isprintable()
