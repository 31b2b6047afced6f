"""Makes notebooks of format 4.5."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def code(source: str | list[str] = "x = 1", *, tags: tuple[str, ...] = (), **fields: Any) -> dict[str, Any]:
    """Return a code cell without outputs."""
    metadata = {"tags": list(tags)} if tags else {}
    return {
        "cell_type": "code", "source": source, "metadata": metadata, "outputs": [], "execution_count": None, **fields,
    }  # fmt: skip


def executed(count: int | None, text: str = "1", **fields: Any) -> dict[str, Any]:
    """Return a code cell that was executed and has printed a text."""
    return code(execution_count=count, outputs=[{"output_type": "stream", "name": "stdout", "text": text}], **fields)


def document(*cells: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a notebook. Cells without an id get one."""
    numbered = [{"id": f"c{number}", **cell} for number, cell in enumerate(cells)]
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": numbered, **fields}


def write(file: Path, *cells: dict[str, Any], **fields: Any) -> Path:
    """Write a notebook, and return its path."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(document(*cells, **fields)))
    return file
