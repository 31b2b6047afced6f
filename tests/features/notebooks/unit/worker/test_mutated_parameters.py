"""Seeded mutations of parameters and of notebooks: each is refused, fails, or reaches the code of the notebook.

The notebooks are executed with the injected parameters, so that the test does not depend on what the code under test
knows about Python.
"""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from toolbox.features.notebooks import runtime_files
from toolbox.features.notebooks.runtime_files import NotebookFile
from toolbox.features.notebooks.runtimes import Notebook
from toolbox.features.notebooks.worker import notebook_engine, notebook_reading
from toolbox.features.notebooks.worker.kernel_connection import Connection
from toolbox.features.notebooks.worker.notebook_reading import NotebookFileError

Cells = list[dict[str, Any]]
Parameters = dict[str, Any]
PARAMETERS: Parameters = {"alpha": 9, "steps": [1, 2], "größe": "x"}
ASSIGNMENTS = ["alpha = 1", "steps: list = [0]  # steps to take, not alpa", "größe = 'm'", "config = {'beta': 1}"]
READS = [
    "def scaled(gamma=1):\n    delta = gamma\n    return delta",
    "seen = (alpha, steps, größe, scaled())",
    "print(seen)",
]
LOCAL_NAMES = ["beta", "gamma", "delta", "alpa", "Alpha", "alpha_", "_alpha", "step", "größen", "grosse", "x1"]
SEEDS = range(160)


def code(source: str, *tags: str, kind: str = "code") -> dict[str, Any]:
    cell = {"cell_type": kind, "metadata": {"tags": list(tags)}, "source": source}
    return {**cell, "outputs": [], "execution_count": None} if kind == "code" else cell


def rename(rng: random.Random, _: Cells, parameters: Parameters) -> None:
    name = rng.choice(list(parameters))
    parameters[rng.choice([*LOCAL_NAMES, name[:-1], name + name[-1], name.upper()])] = parameters.pop(name)


def add(rng: random.Random, _: Cells, parameters: Parameters) -> None:
    parameters[rng.choice([*LOCAL_NAMES, "seen", "scaled", "config", "print"])] = 9


def change_the_tags(rng: random.Random, cells: Cells, _: Parameters) -> None:
    tags = rng.choice([[], ["parameters"], ["Parameters"], ["injected-parameters"], ["skip"]])
    rng.choice(cells)["metadata"]["tags"] = list(tags)


def make_text(rng: random.Random, cells: Cells, _: Parameters) -> None:
    position = rng.randrange(len(cells))
    tags = cells[position]["metadata"]["tags"]
    cells[position] = code(cells[position]["source"], *tags, kind=rng.choice(["markdown", "raw"]))


def change_an_assignment(rng: random.Random, cells: Cells, _: Parameters) -> None:
    lines = cells[1]["source"].splitlines()
    position = rng.randrange(len(lines))
    line = lines[position]
    lines[position] = rng.choice(
        [
            f"# {line}",
            f"def local():\n    {line}",
            f"class Local:\n    {line}",
            f"'''\n{line}\n'''",
            f"if True:\n    {line}",
            f"for _ in range(1):\n    {line}",
            f"try:\n    {line}\nexcept ValueError:\n    pass",
            f"config.{line}" if position < 3 else line,
            "",
        ]
    )
    cells[1]["source"] = "\n".join(lines)


def add_a_cell(rng: random.Random, cells: Cells, _: Parameters) -> None:
    name = rng.choice(list(PARAMETERS))
    new = rng.choice(
        [
            code(f"{name} = 1"),
            code(f"{name} = 2", "injected-parameters"),
            code(f"{name} = 3", "parameters"),
            code(f"# {name}\nother = 1\n{name}: int = 4"),
            code(f"{name} = {name} or 5"),
            code(f"{name} = 6", kind="markdown"),
        ]
    )
    cells.insert(rng.randrange(len(cells) + 1), new)


def swap_cells(rng: random.Random, cells: Cells, _: Parameters) -> None:
    first, second = rng.sample(range(len(cells)), 2)
    cells[first], cells[second] = cells[second], cells[first]


def cell_magic(rng: random.Random, cells: Cells, _: Parameters) -> None:
    cells[1]["source"] = f"%%{rng.choice(['bash', 'writefile a.py', 'time', 'html'])}\n{cells[1]['source']}"


MUTATIONS: list[Callable[[random.Random, Cells, Parameters], None]] = [
    rename, rename, add, change_the_tags, make_text, change_an_assignment, change_an_assignment, add_a_cell, swap_cells,
    cell_magic,
]  # fmt: skip


def mutated(rng: random.Random) -> tuple[Cells, Parameters]:
    """Return the cells of a notebook and its parameters after one or two changes."""
    cells = [code("# Title", kind="markdown"), code("\n".join(ASSIGNMENTS), "parameters"), *map(code, READS)]
    parameters = copy.deepcopy(PARAMETERS)
    for mutation in rng.choices(MUTATIONS, k=rng.randint(1, 2)):
        mutation(rng, cells, parameters)
    return cells, parameters


def executed(cells: Cells) -> dict[str, Any] | None:
    """Return the variables of an executed notebook; None if it fails."""
    variables: dict[str, Any] = {"print": str}
    for cell in cells:
        if cell["cell_type"] == "code" and "skip" not in cell["metadata"]["tags"]:
            magic, _, rest = cell["source"].partition("\n")
            source = rest if magic == "%%time" else "" if magic.startswith("%%") else cell["source"]
            try:
                exec(source, variables)
            except Exception:  # noqa: BLE001  # any exception fails the notebook
                return None
    return variables


def end(directory: Path, rng: random.Random) -> str:
    """Return how a mutated notebook ends."""
    cells, parameters = mutated(rng)
    language = rng.choice([{"language_info": {"name": "python"}}, {}])
    path = directory / "a.ipynb"
    path.write_text(json.dumps({"nbformat": 4, "nbformat_minor": 4, "metadata": language, "cells": cells}))
    entry = Notebook(file="a.ipynb", parameters=parameters)
    if runtime_files.parameter_faults(NotebookFile("a", path, "a", entry)):
        return "refused before the run"
    file = notebook_reading.read(path, directory)
    try:
        notebook_engine.prepare(file, parameters, Connection(None, {"name": "python"}))
    except NotebookFileError:
        return "failed"
    variables = executed(file.notebook.cells)
    if variables is None:
        return "failed"
    seen = variables.get("seen", ())
    # Nothing reads the variable `config`, but the tagged cell assigns it.
    lost = [name for name in parameters if name != "config" and not (name in PARAMETERS and parameters[name] in seen)]
    return "lost" if lost else "compared"


def test_no_mutated_notebook_passes_with_a_parameter_that_has_no_effect(tmp_path: Path) -> None:
    ends = {seed: end(tmp_path, random.Random(seed)) for seed in SEEDS}
    assert [seed for seed, name in ends.items() if name == "lost"] == []
    counts = Counter(ends.values())
    assert counts["refused before the run"] > 50
    assert counts["failed"] > 10
    assert counts["compared"] > 10


def test_the_notebook_itself_reads_its_parameters(tmp_path: Path) -> None:
    cells = [code("\n".join(ASSIGNMENTS), "parameters"), *map(code, READS)]
    path = tmp_path / "a.ipynb"
    path.write_text(json.dumps({"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": cells}))
    file = notebook_reading.read(path, tmp_path)
    notebook_engine.prepare(file, PARAMETERS, Connection(None, {"name": "python"}))
    variables = executed(file.notebook.cells)
    assert variables is not None
    assert variables["seen"] == (9, [1, 2], "x", 1)
