"""A place that runs checks with this Python and without limits, or returns an end that a test gives."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from toolbox.features.notebooks.worker.execution_place import Ended, PlaceError, RunningKernel


@dataclass
class CheckPlace:
    """Implements `Place` without kernels.

    Args:
        end: what each check returns; None to run the checks.
        variables: gets the variables of shell checks.
    """

    end: Ended | PlaceError | None = None
    variables: dict[str, str] = field(default_factory=dict)

    def kernel(self, directory: Path) -> AbstractContextManager[RunningKernel]:
        raise NotImplementedError(directory)

    def shell(self, script: str, variables: Mapping[str, str], *, timeout: float) -> Ended:
        self.variables.update(variables)
        return self._ended(["bash", "-c", script], timeout, {**os.environ, **variables})

    def python(self, source: str, *, timeout: float) -> Ended:
        return self._ended([sys.executable, "-c", source], timeout)

    def _ended(self, command: list[str], timeout: float, environment: Mapping[str, str] | None = None) -> Ended:
        if isinstance(self.end, PlaceError):
            raise self.end
        if self.end is not None:
            return self.end
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, env=environment)
        return Ended(done.returncode, done.stdout, done.stderr)
