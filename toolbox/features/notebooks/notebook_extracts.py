"""Makes a copy of an executed notebook that contains only what a page shows, with limited sizes.

The notebook comes from a target, so each part may have any type. The copy has no ids, and no metadata except the
language, because the templates of nbconvert write ids and metadata into the page.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from toolbox.features.notebooks import html_fragments

LARGEST_NOTEBOOK: Final = 64 * 2**20  # bytes
MAX_CELLS: Final = 2000
_MAX_OUTPUTS: Final = 500  # of a cell
_LONGEST_TEXT: Final = 100_000  # characters of a source, of a text, or of an HTML output
_LONGEST_IMAGE: Final = 5 * 2**20  # characters of the base64 text of an image
_LONGEST_PAGE: Final = 12 * 2**20  # characters of all sources and outputs
_LEXER: Final = re.compile(r"[\w+.#-]{1,40}")
_IMAGES: Final = ("image/png", "image/jpeg", "image/svg+xml")
_TEXTS: Final = ("text/markdown", "text/latex", "text/plain")


class ExtractFault(Exception):
    """The file is not a notebook that can be shown."""


@dataclass(slots=True)
class _Extract:
    """The copy in progress.

    Args:
        left: how many more characters the page may have.
        shortened: how many sources and outputs are not shown completely.
    """

    left: int = _LONGEST_PAGE
    shortened: int = 0
    notes: list[str] = field(default_factory=list)

    def text(self, value: object, longest: int = _LONGEST_TEXT) -> str:
        """Return a text of a notebook. If the text is too long, its middle is left out."""
        whole = joined(value)
        longest = min(longest, max(self.left, 0))
        if len(whole) > longest:
            self.shortened += 1
            omitted = f"\n... {len(whole) - longest} characters are not shown here ...\n"
            whole = whole[: longest // 2] + omitted + (whole[-(longest // 2) :] if longest > 1 else "")
        self.left -= len(whole)
        return whole

    def whole(self, value: object, longest: int) -> str | None:
        """Return a value that must not be shortened, such as an image; None if it is too long."""
        text = joined(value)
        if len(text) > min(longest, self.left):
            self.shortened += 1
            return None
        self.left -= len(text)
        return text


def read(path: Path) -> tuple[dict[str, Any], list[str]]:
    """Return the copy of a notebook in format 4, and notes about what was left out.

    Raises:
        ExtractFault: the file is too large, or is not such a notebook.
    """
    try:
        size = path.stat().st_size
        if size > LARGEST_NOTEBOOK:
            raise ExtractFault(f"the notebook has {size} bytes, more than {LARGEST_NOTEBOOK}")
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ExtractFault(f"the notebook cannot be read: {type(error).__name__}") from None
    if not isinstance(document, dict) or document.get("nbformat") != 4 or not _is_list(document.get("cells")):  # noqa: PLR2004
        raise ExtractFault("the file is not a notebook in format 4")
    cells = document["cells"]
    extract = _Extract()
    shown = [_cell(cell, extract) for cell in cells[:MAX_CELLS] if isinstance(cell, dict)]
    if len(cells) > MAX_CELLS:
        extract.notes.append(f"The last {len(cells) - MAX_CELLS} cells are not shown here.")
    if extract.shortened:
        extract.notes.append(f"{extract.shortened} sources or outputs are too long to be shown completely.")
    return {
        "nbformat": 4,
        "nbformat_minor": 4,
        "metadata": _language(document.get("metadata")),
        "cells": shown,
    }, extract.notes


def joined(value: object) -> str:
    """Return a text of a notebook, which is a string or a list of strings."""
    if isinstance(value, str):
        return value
    return "".join(part for part in value if isinstance(part, str)) if isinstance(value, list) else ""


def _is_list(value: object) -> bool:
    return isinstance(value, list)


def _language(metadata: object) -> dict[str, Any]:
    info = metadata.get("language_info") if isinstance(metadata, Mapping) else None
    names = {key: info.get(key) for key in ("name", "pygments_lexer")} if isinstance(info, Mapping) else {}
    known = {key: name for key, name in names.items() if isinstance(name, str) and _LEXER.fullmatch(name)}
    return {"language_info": known} if known else {}


def _cell(cell: Mapping[str, Any], extract: _Extract) -> dict[str, Any]:
    kind = cell.get("cell_type")
    source = extract.text(cell.get("source"))
    if kind == "markdown":
        attachments = _attachments(cell.get("attachments"), extract)
        return {"cell_type": "markdown", "metadata": {}, "source": source, "attachments": attachments}
    if kind != "code":
        return {"cell_type": "raw", "metadata": {}, "source": source}
    outputs = cell.get("outputs")
    found = outputs if isinstance(outputs, list) else []
    if len(found) > _MAX_OUTPUTS:
        extract.notes.append(f"A cell has {len(found)} outputs: only the first {_MAX_OUTPUTS} are shown here.")
    shown = [_output(output, extract) for output in found[:_MAX_OUTPUTS] if isinstance(output, dict)]
    return {
        "cell_type": "code",
        "metadata": {},
        "source": source,
        "execution_count": _count(cell.get("execution_count")),
        "outputs": shown,
    }


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 10**9 else None


def _attachments(attachments: object, extract: _Extract) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for name, bundle in attachments.items() if isinstance(attachments, dict) else ():
        for kind in _IMAGES if isinstance(bundle, dict) else ():
            if kind in bundle and (data := extract.whole(bundle[kind], _LONGEST_IMAGE)) is not None:
                found[name] = {kind: data}
                break
    return found


def _output(output: Mapping[str, Any], extract: _Extract) -> dict[str, Any]:
    match output.get("output_type"):
        case "stream":
            name = "stderr" if output.get("name") == "stderr" else "stdout"
            return {"output_type": "stream", "name": name, "text": extract.text(output.get("text"))}
        case "error":
            name, value = (extract.text(output.get(key), 2000) for key in ("ename", "evalue"))
            lines = output.get("traceback")
            text = extract.text("\n".join(map(joined, lines)) if isinstance(lines, list) else "")
            return {"output_type": "error", "ename": name, "evalue": value, "traceback": [text or f"{name}: {value}"]}
    data = output.get("data")
    return {
        "output_type": "display_data",
        "metadata": {},
        "data": _data(data if isinstance(data, dict) else {}, extract),
    }


def _data(data: Mapping[str, Any], extract: _Extract) -> dict[str, str]:
    """Return the representation of an output that the page shows."""
    if joined(data.get("text/html")):
        text = extract.whole(data["text/html"], _LONGEST_TEXT * 5)
        if text is not None and not html_fragments.is_blank(shown := html_fragments.cleaned(text)):
            return {"text/html": shown}
    for kind in _IMAGES:
        if joined(data.get(kind)) and (image := extract.whole(data[kind], _LONGEST_IMAGE)) is not None:
            return {kind: image}
    for kind in _TEXTS:
        if joined(data.get(kind)):
            return {kind: extract.text(data[kind])}
    kinds = ", ".join(sorted(kind for kind in data if kind.isprintable())[:5])
    return {"text/plain": f"[an output that is not shown here: {kinds[:200] or 'no data'}]"}
