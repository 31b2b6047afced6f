"""The contract of the block `notebooks` of the project `notebooks`: how the worker runs the tests."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from toolbox.features.notebooks.runtimes import Strict, Text
from toolbox.ground.model.quantities import Duration, Range, Seconds


class NotebooksBlock(Strict):
    """The block `notebooks`.

    Args:
        python: the Python on the targets that runs the worker, and from which environments are made.
        checks: the names of checks, or the paths of further ones; None for all in `projects/notebooks/checks`.
        check_timeout: the time limit of each check in seconds.
        environments: the directory of the cached environments on the targets.
        environment_timeout: the time in seconds for making the environments of a combination.
        keep_days: for how many days an environment is kept after its last use.
        sample_seconds: the interval in seconds between two samples of the resource use of a kernel.
        output_mb: the size of all outputs of a notebook, or of a check, in units of 10^6 bytes.
        pdf: whether each executed notebook is also converted to PDF, which needs Chromium on this machine.
        cells: derived from `runtimes` and `machines`; null in the file.
    """

    python: Text = "python3"
    checks: list[Text] | None = None
    check_timeout: Seconds = 60
    environments: Text = "~/.cache/topgallant/environments"
    environment_timeout: Seconds = 1800
    keep_days: Annotated[float, Field(ge=0, le=36500)] = 30
    sample_seconds: Annotated[float, Range(least=0.05, most=60), Duration()] = 0.2
    output_mb: Annotated[float, Field(gt=0, le=1000)] = 20
    pdf: bool = False
    cells: dict[str, dict[str, Any]] | None = None
