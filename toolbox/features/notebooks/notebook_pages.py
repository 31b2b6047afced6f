"""Writes an HTML page for each executed notebook of a run, beside `files/` of its attempt.

Only pages that are missing or older than their notebook are made. So a resumed run and `results report` do not convert
a notebook twice. A notebook that cannot be converted gets a page that says why. The program
`toolbox.features.notebooks.html_converter` converts all notebooks. Its HTML contains nothing that a browser would
execute or load. In addition, the content security policy of the page forbids this.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from markupsafe import Markup

from toolbox.features.notebooks import executed_notebooks
from toolbox.features.notebooks.executed_notebooks import ExecutedNotebook
from toolbox.features.notebooks.extra import EXTRA
from toolbox.ground.kit import process_tree
from toolbox.ground.model.errors import describe
from toolbox.ground.system import cancellation, environ, extras, filesystem, places, processes, redaction, scratch
from toolbox.records.runs.layout import RunDirectory
from toolbox.records.runs.run_state import RunState
from toolbox.reports import _links, _web_page
from toolbox.reports.page.step_details import anchor_of

log = logging.getLogger(__name__)
_TEMPLATE: Final = Path(__file__).parent / "templates/notebook.html"
_PROGRAM: Final = (sys.executable, "-P", "-m", "toolbox.features.notebooks.html_converter")
_VARIABLES: Final = ("PATH", "HOME", "LANG", "TMPDIR")  # the converter gets no other variables of this process
_LIBRARIES: Final = ("nbconvert", "nh3")
_MANY: Final = 50  # with so many notebooks, a line tells the user about the conversion
MAX_NOTEBOOKS: Final = 1000  # of a run
MAX_SECONDS: Final = 300  # for all notebooks of a run


def of_run(summary: RunState) -> list[ExecutedNotebook]:
    """Return the executed notebooks of a run. Notebooks of failed cells are first."""
    cells = sorted(summary.cells, key=lambda cell: not cell.has_failed)
    withheld = frozenset(summary.secrets_left)
    found = [each for cell in cells for each in executed_notebooks.of_step(summary.directory, cell, withheld)]
    return found[:MAX_NOTEBOOKS]


def make_missing(summary: RunState) -> None:
    """Write the pages of a run that are missing or outdated. A failure is logged, because reports must be written."""
    outdated = [each for each in of_run(summary) if _is_outdated(summary.directory, each)]
    if not outdated:
        return
    missing = next((name for name in _LIBRARIES if importlib.util.find_spec(name) is None), None)
    if missing is not None:
        text = f"executed notebooks are not converted to HTML, because {missing} is not installed"
        log.warning("%s: %s", text, extras.install_command(EXTRA))
        return
    if len(outdated) > _MANY:
        log.info("converting %d executed notebooks to HTML", len(outdated))
    try:
        with cancellation.limited(MAX_SECONDS):
            _convert(summary, outdated)
    except Exception as error:  # noqa: BLE001  # a fault of the pages must not prevent the report
        log.warning("not all executed notebooks could be converted to HTML: %s", describe(error))


def _is_outdated(root: Path, notebook: ExecutedNotebook) -> bool:
    source, page = root.joinpath(*notebook.source), root.joinpath(*notebook.page)
    with suppress(OSError):
        return page.is_symlink() or page.stat().st_mtime_ns < source.stat().st_mtime_ns
    return True


def _convert(summary: RunState, notebooks: Sequence[ExecutedNotebook]) -> None:
    root = summary.directory
    with scratch.directory() as folder:
        results = [folder / f"{number}.json" for number in range(len(notebooks))]
        jobs = folder / "jobs"
        lines = (
            json.dumps([str(root.joinpath(*each.source).absolute()), str(result)])
            for each, result in zip(notebooks, results, strict=True)
        )
        jobs.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

        def take(line: str) -> None:
            if line.isdecimal() and int(line) < len(notebooks):
                number = int(line)
                _write(summary, notebooks[number], json.loads(results[number].read_bytes()))
                results[number].unlink()

        with jobs.open("rb") as stream:
            completed = processes.run(
                _PROGRAM, env=_environment(root), stdin=stream, on_line=take, on_error_line=log.debug
            )
    if completed.returncode != 0:
        log.warning("the converter of notebooks ended with status %d, and some pages are missing", completed.returncode)


def _environment(root: Path) -> dict[str, str]:
    everything = processes.environment(processes.apart(root), {"PYTHONPATH": str(places.PACKAGE.parent)})
    kept = {*_VARIABLES, "PYTHONPATH", environ.ARTIFACT_DIR, process_tree.MARK}
    return {name: value for name, value in everything.items() if name in kept}


def _write(summary: RunState, notebook: ExecutedNotebook, result: dict[str, Any]) -> None:
    """Write the page of a notebook. Mask secrets again, because the conversion may join the parts of a secret."""
    root = summary.directory
    page = root.joinpath(*notebook.page)
    filesystem.make_directory(page.parent)
    if _links.inside(root, *notebook.page[:-1]) is None:  # a link could lead out of the run directory
        return
    up = "../" * (len(notebook.page) - 1 + notebook.step.step.count("/"))
    filesystem.write_text(
        page,
        _web_page.render(
            _TEMPLATE,
            styles=("notebook.css",),
            scripts=(),
            icon=notebook.mark,
            mark=notebook.mark,
            name=notebook.name,
            cell=notebook.step.name,
            report=f"{up}{RunDirectory.html}#{anchor_of(notebook.step)}",
            source=_relative(root, page.parent, root.joinpath(*notebook.source)),
            size=filesystem.size(root.joinpath(*notebook.source)),
            notes=result.get("notes", ()),
            fault=result.get("fault", ""),
            html=Markup(redaction.current()(result.get("html", ""))),  # noqa: S704  # the HTML is clean
        ),
    )


def _relative(root: Path, folder: Path, file: Path) -> str:
    """Return the address of a file, relative to a folder. Both must be in the run directory."""
    up = os.path.relpath(root, folder)
    return f"{up}/{_links.href(root.resolve(), root.resolve() / file.relative_to(root)).removeprefix('./')}"
