"""Runs a load on a server that is already running."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from toolbox.features.inference import local_worker, suites
from toolbox.features.inference.case_files import Case
from toolbox.features.inference.client import worker_results
from toolbox.features.inference.load_steps import Load
from toolbox.features.inference.local_worker import RunningServer
from toolbox.ground.model.errors import UsageError

SAMPLES: Final = f"files/{worker_results.LOAD_SAMPLES}"
"""The file with one row for each request."""


@dataclass(frozen=True, slots=True)
class StandaloneLoad:
    """A load that can run: the server, the settings of the worker, and the requests to send."""

    server: RunningServer
    settings: Mapping[str, Any]
    cases: Mapping[str, Any]

    @classmethod
    def of(cls, server: RunningServer, load: Load, cases: Sequence[Case], *, timeout: float) -> Self:
        """Return a load with the requests of the cases that are fit for it.

        Args:
            timeout: the time in seconds in which an answer must be complete.

        Raises:
            UsageError: no case is fit for the load.
        """
        sent, expectations = suites.describe_load(cases, protocols=server.protocols)
        if not sent["cases"]:
            raise UsageError(f"--cases: no case is left for the load ({suites.skip_reasons(expectations)})")
        return cls(server, {"server": server.settings(timeout), "timeout": timeout, "load": load.settings}, sent)

    def run(self, directory: Path, *, say: Callable[[str], object]) -> None:
        """Run the worker to its end.

        Args:
            directory: where the files are written.
            say: called with each line that the worker prints.

        Raises:
            UsageError: the worker refused the settings or a request.
            StepError: the worker did not measure all steps. The message is its last error.
        """
        end = local_worker.run(directory, self.settings, self.cases, say=say)
        if (error := end.error(directory)) is not None:
            raise error
