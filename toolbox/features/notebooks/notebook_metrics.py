"""Makes the metrics of the notebooks of a configuration: the time and the memory of each notebook, or of each cell.

`derive` of the project `notebooks` adds them to `matrix.metrics`. The worker measures each cell of each notebook, and
`results.jsonl` contains the figures. Each metric is a row of every report and a series of the store. So the cells of a
notebook are metrics only if its entry in the configuration has `cell_metrics: true`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from toolbox.features.notebooks import notebook_files

_FIGURES: Final = {
    "seconds": {"figure": "seconds", "unit": "s", "direction": "lower"},
    "peak_memory": {"figure": "peak_memory_bytes", "unit": "bytes", "direction": "lower"},
}


@dataclass(frozen=True, slots=True)
class MeasuredNotebook:
    """A notebook that is executed. Manual notebooks are not measured.

    Args:
        name: the name of the test.
        cells_of: the notebook file if the metrics of each cell are wanted, too; None for those of the notebook only.
    """

    name: str
    cells_of: Path | None = None


def metrics(runtimes: Mapping[str, Iterable[MeasuredNotebook]]) -> dict[str, dict[str, Any]]:
    """Return entries of `matrix.metrics`: `NAME.seconds` and `NAME.peak_memory`, and the same as `NAME.CELL.seconds`.

    CELL is the id of the cell, or `cell_3` for the third code cell if it has no id. If a cell is inserted above
    another, the id of the other cell stays the same, and so does the series of its metric. Each metric belongs to the
    runtimes that have the notebook (`when`).

    Args:
        runtimes: the notebooks of each runtime.

    Raises:
        ValueError: the cells of a notebook cannot be read. The message begins with the path.
    """
    owners: dict[tuple[str, int | str | None], list[str]] = {}
    for runtime, notebooks in runtimes.items():
        for notebook in notebooks:
            for cell in (None, *_cells(notebook)):
                names = owners.setdefault((notebook.name, cell), [])
                if runtime not in names:
                    names.append(runtime)
    return {
        f"{_prefix(name, cell)}.{metric}": {
            "source": "notebook",
            "notebook": name,
            **({"cell": cell} if cell is not None else {}),
            **fields,
            "when": {"runtime": names},
        }
        for (name, cell), names in owners.items()
        for metric, fields in _FIGURES.items()
    }


def verify(notebooks: Iterable[MeasuredNotebook]) -> None:
    """Check that the cells of notebooks can be read.

    Raises:
        ValueError: the cells of a notebook cannot be read. The message begins with the path.
    """
    for notebook in notebooks:
        for _ in _cells(notebook):
            pass


def _cells(notebook: MeasuredNotebook) -> Iterator[int | str]:
    """Yield the ids of the code cells of a notebook, or the numbers of those without an id."""
    if notebook.cells_of is None:
        return
    try:
        content = notebook_files.read(notebook.cells_of)
    except ValueError as error:
        raise ValueError(f"{notebook.cells_of} {error}") from None
    for cell in content.code_cells:
        assert cell.number is not None, "a code cell has a number"
        if cell.source.strip():
            yield cell.id or cell.number


def _prefix(name: str, cell: int | str | None) -> str:
    if cell is None:
        return name
    return f"{name}.cell_{cell}" if isinstance(cell, int) else f"{name}.{cell}"
