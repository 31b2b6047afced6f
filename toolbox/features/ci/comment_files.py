"""Writes the comment of a run into a file if there is no pull request: in a terminal, or in a job started by hand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from toolbox.features.ci.run_comment import WorkflowRun
from toolbox.ground.system import filesystem, places

_FOLDER: Final = "comments"
_UNSAFE = re.compile(r"[^\w.-]")


def write(part: WorkflowRun, text: str, artifacts: Path | None) -> Path:
    """Write the comment of a run, or replace its text. Return the path of the file.

    Args:
        artifacts: the directory of artifacts; None for the default directory.
    """
    folder = filesystem.make_directory((artifacts or places.artifacts()) / _FOLDER)
    return filesystem.write_text(folder / f"{_UNSAFE.sub('-', part.marker)}.md", f"{text}\n")
