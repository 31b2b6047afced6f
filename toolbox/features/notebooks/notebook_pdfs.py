"""Prints the pages of executed notebooks as PDF files with Chromium, if `notebooks.pdf` of the configuration is true.

Only files that are missing or older than their page are made. A failure is logged, and does not prevent the reports.
"""

from __future__ import annotations

import logging
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

import yaml

from toolbox.features.notebooks import notebook_pages
from toolbox.features.notebooks.executed_notebooks import ExecutedNotebook
from toolbox.ground.kit import process_tree
from toolbox.ground.model.errors import describe
from toolbox.ground.model.yaml_scalars import FastLoader
from toolbox.ground.system import cancellation, filesystem, processes, scratch
from toolbox.records.runs.layout import RunDirectory
from toolbox.records.runs.run_state import RunState
from toolbox.reports import _links

log = logging.getLogger(__name__)
MAX_SECONDS: Final = 60  # for each notebook
MAX_SECONDS_OF_RUN: Final = 900
LARGEST: Final = 64 * 2**20  # bytes of a PDF file
_PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome")
# Chromium makes no requests of its own, and can resolve no host. The policy of the page forbids scripts. Scripts are
# not disabled in Chromium, because it could then not print.
_FLAGS: Final = (
    *("--headless", "--disable-gpu", "--no-first-run", "--no-pdf-header-footer", "--disable-extensions"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-default-apps"),
    *("--host-resolver-rules=MAP * ~NOTFOUND", "--proxy-server=127.0.0.1:9", "--password-store=basic"),
)
_VARIABLES: Final = ("PATH", "LANG", "FONTCONFIG_PATH", "FONTCONFIG_FILE")  # no other variables of this process


def make_missing(summary: RunState) -> None:
    """Write the PDF files of a run that are missing or outdated, if the configuration says so."""
    outdated = [each for each in notebook_pages.of_run(summary) if _is_outdated(summary.directory, each)]
    if not outdated or not _is_enabled(summary.directory):
        return
    if (program := _program()) is None:
        names = ", ".join(_PROGRAMS)
        log.warning("executed notebooks are not converted to PDF, because none of %s is on the PATH", names)
        return
    try:
        with cancellation.limited(MAX_SECONDS_OF_RUN):
            for notebook in outdated:
                _print(program, summary.directory, notebook)
    except TimeoutError as error:
        log.warning("not all executed notebooks could be converted to PDF: %s", describe(error))


def _program() -> str | None:
    return next((program for name in _PROGRAMS if (program := shutil.which(name)) is not None), None)


def _is_enabled(root: Path) -> bool:
    with suppress(OSError, ValueError, yaml.YAMLError):
        document = yaml.load(RunDirectory(root).configuration.read_text(encoding="utf-8"), FastLoader)  # noqa: S506
        block = document.get("notebooks") if isinstance(document, dict) else None
        return isinstance(block, dict) and block.get("pdf") is True
    return False


def _is_outdated(root: Path, notebook: ExecutedNotebook) -> bool:
    """Return whether a page has no PDF file, or a PDF file that is older than the page."""
    page = _links.inside(root, *notebook.page)
    if page is None:
        return False
    with suppress(OSError):
        file = root.joinpath(*notebook.pdf)
        return file.is_symlink() or file.stat().st_mtime_ns < page.stat().st_mtime_ns
    return True


def _print(program: str, root: Path, notebook: ExecutedNotebook) -> None:
    """Print a page, and log why there is no PDF file."""
    page = root.joinpath(*notebook.page).absolute()
    errors: list[str] = []
    with scratch.directory() as folder:
        printed = folder / "page.pdf"
        arguments = [f"--user-data-dir={folder / 'profile'}", f"--print-to-pdf={printed}", page.as_uri()]
        # root, for example in a container, cannot use the sandbox of Chromium.
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        try:
            with cancellation.limited(MAX_SECONDS):
                processes.run(
                    [program, *_FLAGS, *sandbox, *arguments],
                    env=_environment(root, folder),
                    on_line=lambda _: None,
                    on_error_line=errors.append,
                )
            filesystem.write_bytes(root.joinpath(*notebook.pdf), _content(printed))
        except (OSError, TimeoutError) as error:
            log.warning("%s could not be converted to PDF: %s", notebook.name, describe(error))
            log.debug("%s", "\n".join(errors[-20:]))


def _content(printed: Path) -> bytes:
    content = printed.read_bytes() if filesystem.size(printed) <= LARGEST else b""
    if not content.startswith(b"%PDF"):
        raise OSError("Chromium wrote no PDF file, or one that is too large")
    return content


def _environment(root: Path, home: Path) -> dict[str, str]:
    everything = processes.environment(processes.apart(root))
    names = {*_VARIABLES, process_tree.MARK}
    return {**{name: value for name, value in everything.items() if name in names}, "HOME": str(home)}
