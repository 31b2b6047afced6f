"""`notebooks check_clean` tells a hook or a CI job which notebooks are not clean, file by file and cell by cell."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolbox.ground.system import places
from toolbox.testing import Workspace

TOKEN = "gh" + "p_aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bD1fG3hJ5"


def notebook(source: str, **fields: Any) -> str:
    """Return the text of a notebook with one code cell."""
    cell: dict[str, Any] = {
        "id": "c1",
        "cell_type": "code",
        "metadata": {},
        "source": source,
        "outputs": [],
        "execution_count": None,
    }
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [{**cell, **fields}]})


@pytest.fixture
def notebooks(workspace: Workspace) -> Workspace:
    """Return a workspace with notebooks."""
    return workspace.write(
        {
            "clean.ipynb": notebook("x = 1"),
            "secret.ipynb": notebook(f"login('{TOKEN}')"),
            "kept.ipynb": notebook(
                "1", execution_count=1, outputs=[{"output_type": "stream", "name": "stdout", "text": "1"}]
            ),
            "\x1b[31m::error::.ipynb": "not json",
        }
    )


def test_clean_notebooks_pass(notebooks: Workspace) -> None:
    outcome = notebooks.run("notebooks", "check_clean", "clean.ipynb", "clean.ipynb")
    assert (outcome.exit_code, outcome.stdout) == (0, "2 notebooks clean\n")


def test_each_fault_is_a_line_without_the_secret(notebooks: Workspace) -> None:
    files = ("clean.ipynb", "secret.ipynb", "kept.ipynb", "\x1b[31m::error::.ipynb", "gone.ipynb")
    outcome = notebooks.run("notebooks", "check_clean", *files)
    assert outcome.exit_code == 1
    assert outcome.stdout.splitlines() == [
        "secret.ipynb: code cell 1: line 1 contains a token of GitHub",
        "kept.ipynb: code cell 1: has outputs: clear them before you commit",
        "kept.ipynb: code cell 1: has an execution count: clear it before you commit",
        ": :error::.ipynb: is not JSON, so it is not a notebook",
        "gone.ipynb: does not exist",
    ]


def test_outputs_that_are_compared_are_kept(notebooks: Workspace) -> None:
    assert notebooks.run("notebooks", "check_clean", "--keep_outputs", "kept.ipynb").exit_code == 0


def test_the_notebooks_of_the_project_are_clean(workspace: Workspace) -> None:
    files = sorted((places.builtin_root() / "projects/notebooks/notebooks").glob("*.ipynb"))
    outcome = workspace.run("notebooks", "check_clean", *map(str, files))
    assert (outcome.exit_code, outcome.stdout) == (0, f"{len(files)} notebooks clean\n")


def test_a_command_without_files_is_refused(workspace: Workspace) -> None:
    outcome = workspace.run("notebooks", "check_clean")
    assert outcome.exit_code == 2
    assert "--files is missing" in outcome.stderr
