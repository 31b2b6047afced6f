"""Work with the notebooks that the project notebooks tests."""

from __future__ import annotations

from pathlib import Path

from toolbox.features.notebooks import clean_notebooks
from toolbox.ground.model.foreign_text import printable
from toolbox.ground.model.text import counted
from toolbox.ground.model.verdicts import ExitCode


class Notebooks:
    """Work with the notebooks that the project notebooks tests."""

    def check_clean(self, *files: Path, keep_outputs: bool = False) -> int:
        """
        Check that notebooks have no outputs, no execution counts, no secrets, and a valid current format.

        Each fault is a line on stdout, such as `FILE: code cell 3: has outputs`. The exit code is 1 if there is a
        fault. Cells with the tag `nbval-check-output` may have outputs.

        Args:
            files: the notebooks, for example those of a commit.
            keep_outputs: whether the notebooks keep their outputs, because a run compares them with new outputs.
        """
        unclean = 0
        for file in files:
            faults = clean_notebooks.faults(file, keeps_outputs=keep_outputs)
            unclean += bool(faults)
            for fault in faults:
                print(printable(f"{file}: {fault}"))
        if not unclean:
            print(f"{counted(len(files), 'notebook')} clean")
        return ExitCode.FAILED if unclean else ExitCode.PASSED
