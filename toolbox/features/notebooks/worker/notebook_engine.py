"""Executes a notebook with papermill on a kernel of a place, and injects the parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from nbformat import NotebookNode
from papermill.engines import NBClientEngine, papermill_engines
from papermill.exceptions import PapermillException
from papermill.parameterize import parameterize_notebook

from toolbox.features.notebooks.worker import notebook_parameters, notebook_reading
from toolbox.features.notebooks.worker.cell_outputs import StreamMerger
from toolbox.features.notebooks.worker.executed_notebook import ExecutedNotebook
from toolbox.features.notebooks.worker.execution_place import RunningKernel
from toolbox.features.notebooks.worker.failure_texts import one_line
from toolbox.features.notebooks.worker.kernel_connection import Connection
from toolbox.features.notebooks.worker.notebook_client import CellLimits, CellsClient
from toolbox.features.notebooks.worker.notebook_parameters import ParameterCell
from toolbox.features.notebooks.worker.notebook_reading import NotebookFile, NotebookFileError

ENGINE: Final = "topgallant"


@dataclass(frozen=True)
class Execution:
    """What the engine needs in addition to what papermill passes to it.

    Args:
        numbers: the number of each code cell, by its index in the notebook.
    """

    kernel: RunningKernel
    connection: Connection
    limits: CellLimits
    numbers: Mapping[int, int]


class PlaceEngine(NBClientEngine):  # type: ignore[misc]
    """Executes the cells on a kernel that a place has started."""

    @classmethod
    def execute_notebook(  # noqa: D102 - see Engine.execute_notebook
        cls, nb: NotebookNode, kernel_name: str, output_path: str, execution: Execution, **_: Any
    ) -> CellsClient:
        merger = StreamMerger()
        executed = ExecutedNotebook(nb, Path(output_path), merger.flush)
        client = CellsClient(
            executed,
            kernel=execution.kernel,
            connection=execution.connection,
            limits=execution.limits,
            numbers=execution.numbers,
            merger=merger,
            kernel_name=kernel_name,
        )
        executed.notebook_start()
        try:
            client.execute()
        finally:
            executed.notebook_complete()
        return client


papermill_engines.register(ENGINE, PlaceEngine)


def prepare(file: NotebookFile, parameters: Mapping[str, Any], connection: Connection) -> dict[int, int]:
    """Inject the parameters into the notebook, and return the number of each code cell by its index.

    Raises:
        NotebookFileError: a parameter has no effect on the notebook, or papermill cannot write parameters in the
            language of the kernel.
    """
    notebook = file.notebook
    numbers = {id(cell): number for number, cell in enumerate(file.code_cells, start=1)}
    notebook.metadata.papermill = NotebookNode(parameters={}, version="", exception=None)
    for cell in notebook.cells:
        cell.metadata.setdefault("tags", [])
    if parameters:
        _inject(notebook, dict(parameters), connection.language)
    notebook.metadata.language_info = NotebookNode(connection.language_info)
    return {index: numbers.get(id(cell), 0) for index, cell in enumerate(notebook.cells) if cell.cell_type == "code"}


def _inject(notebook: NotebookNode, parameters: dict[str, Any], language: str) -> None:
    _check_parameters(notebook, parameters, language)
    # papermill would write into the first injected cell of an earlier execution, which may be in front of the tag.
    injected = notebook_parameters.INJECTED_TAG
    notebook.cells = [cell for cell in notebook.cells if injected not in notebook_reading.tags(cell)]
    try:
        parameterize_notebook(notebook, parameters, kernel_name=language, language=language, engine_name=ENGINE)
    except (PapermillException, NotImplementedError, ValueError) as error:
        message = f"the parameters cannot be written in the language of the kernel: {one_line(str(error))}"
        raise NotebookFileError(message) from None


def _check_parameters(notebook: NotebookNode, parameters: Mapping[str, Any], language: str) -> None:
    """Raise NotebookFileError if a parameter has no effect on the notebook."""
    cells = [
        ParameterCell(cell.source if cell.cell_type == "code" else None, notebook_reading.tags(cell))
        for cell in notebook.cells
    ]
    faults = notebook_parameters.faults(parameters, cells, notebook_reading.comparable_language(language))
    if faults:
        raise NotebookFileError(one_line(f"the notebook {faults[0].reason}"))


def execute(file: NotebookFile, path: Path, execution: Execution) -> CellsClient:
    """Execute a prepared notebook, and keep it at `path`.

    Raises:
        CannotWriteError: the executed notebook cannot be written.
    """
    client: CellsClient = papermill_engines.execute_notebook_with_engine(
        ENGINE,
        file.notebook,
        kernel_name=execution.connection.language,
        output_path=str(path),
        execution=execution,
    )
    return client
