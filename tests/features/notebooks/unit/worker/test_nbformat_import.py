"""nbformat is imported without a parser whose import takes more than a second."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from toolbox.ground.system import places

PROGRAM = """
from toolbox.features.notebooks.worker import nbformat_import
nbformat_import.load()
nbformat_import.load()
import nbformat
print("loaded", nbformat.__name__)
import rfc3987_syntax
"""


def test_the_parser_is_not_imported_but_other_code_can_import_it(tmp_path: Path) -> None:
    (tmp_path / "rfc3987_syntax.py").write_text("print('parser'); is_valid_syntax = None")
    path = os.pathsep.join([str(tmp_path), str(places.builtin_root())])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.splitlines(), done.stderr) == (["loaded nbformat", "parser"], "")
