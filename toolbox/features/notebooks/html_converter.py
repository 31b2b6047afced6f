"""Converts executed notebooks to HTML. It is a separate program, because the notebooks come from targets.

    python -m toolbox.features.notebooks.html_converter < JOBS

Each line of JOBS is a JSON list of two paths: a notebook, and the file for the result. The program prints the number
of each line when its result is complete. A result is a JSON object: `html` and `notes`, or the reason `fault`.

nbconvert is imported once. Then a separate child process converts each notebook. The limits of this process apply
whatever the notebook contains: the operating system ends a process that exceeds its CPU time.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from toolbox.features.notebooks import html_fragments, notebook_extracts
from toolbox.features.notebooks.worker import nbformat_import

MAX_SECONDS: Final = 30  # of CPU for each notebook; a typical notebook takes 0.1 s
MAX_MEMORY: Final = 2**31  # bytes of address space for each notebook
LARGEST_PAGE: Final = 32 * 2**20  # bytes of HTML
_MAX_PROCESSES: Final = 4
_FAILED: Final = 1  # the exit status of a child process that could not write its result

Converter = Callable[[dict[str, Any]], str]


def main() -> None:
    """Convert the notebooks that the standard input names."""
    jobs = [json.loads(line) for line in sys.stdin]
    convert = _converter()
    running: dict[int, int] = {}
    for number, (source, target) in enumerate(jobs):
        if len(running) >= min(_MAX_PROCESSES, os.cpu_count() or 1):
            _finish_one(running, jobs)
        if (process := os.fork()) == 0:
            _work(convert, Path(source), Path(target))
        running[process] = number
    while running:
        _finish_one(running, jobs)


def _converter() -> Converter:
    """Load all templates, and return the function that converts a notebook."""
    nbformat_import.load()
    import nbformat
    from nbconvert.exporters import HTMLExporter

    exporter = HTMLExporter(template_name="basic", sanitize_html=True, exclude_anchor_links=True)  # type: ignore[no-untyped-call]
    # nbconvert's own filter allows too few elements: it shows headings and tables as tags. The templates apply the
    # filter to each source and each output separately, so that none of them can close an element of the page.
    exporter.register_filter("clean_html", html_fragments.cleaned)  # type: ignore[no-untyped-call]

    def convert(notebook: dict[str, Any]) -> str:
        page, _ = exporter.from_notebook_node(nbformat.from_dict(notebook))
        return html_fragments.cleaned(page)

    code: dict[str, Any] = {"cell_type": "code", "metadata": {}, "source": "0", "execution_count": None, "outputs": []}
    convert({"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": [code]})
    return convert


def _finish_one(running: dict[int, int], jobs: list[tuple[str, str]]) -> None:
    """Wait for a child process, and print the number of its notebook."""
    process, status = os.wait()
    number = running.pop(process)
    if status != 0:
        over = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU
        reason = f"the conversion took more than {MAX_SECONDS} s of CPU time" if over else "the conversion was killed"
        _write(Path(jobs[number][1]), {"fault": reason})
    print(number, flush=True)  # noqa: T201  # the caller reads the numbers


def _work(convert: Converter, source: Path, target: Path) -> None:
    """Convert a notebook in a child process, and end the process."""
    try:
        signal.signal(signal.SIGXCPU, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CPU, (MAX_SECONDS, MAX_SECONDS + 5))
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
        resource.setrlimit(resource.RLIMIT_FSIZE, (2 * LARGEST_PAGE, 2 * LARGEST_PAGE))
        _write(target, _result(convert, source))
        os._exit(0)
    except BaseException:  # noqa: BLE001  # a forked process must not continue as its parent
        os._exit(_FAILED)


def _result(convert: Converter, source: Path) -> dict[str, Any]:
    try:
        notebook, notes = notebook_extracts.read(source)
        html = convert(notebook)
    except notebook_extracts.ExtractFault as error:
        return {"fault": str(error)}
    except MemoryError:
        return {"fault": f"the conversion needs more than {MAX_MEMORY >> 20} MiB of memory"}
    except Exception as error:  # noqa: BLE001  # nbconvert, Markdown and Pygments may fail for any text
        return {"fault": f"the conversion failed with {type(error).__name__}"}
    if len(html.encode(errors="replace")) > LARGEST_PAGE:
        return {"fault": f"the page has more than {LARGEST_PAGE >> 20} MiB"}
    return {"html": html, "notes": notes}


def _write(target: Path, result: dict[str, Any]) -> None:
    temporary = target.with_suffix(".part")
    temporary.write_text(json.dumps(result), encoding="utf-8")
    temporary.replace(target)


if __name__ == "__main__":
    logging.disable()  # nbconvert logs parts of notebooks
    main()
