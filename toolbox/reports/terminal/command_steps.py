"""Opens the step of a command that has no role."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from toolbox.ground.model.events import Event, Note, StepKind
from toolbox.orchestration import session
from toolbox.records.runs import steps
from toolbox.records.runs.steps import Step
from toolbox.reports.terminal import live_view


@contextmanager
def opened(name: str, *, artifacts: Path | None = None, stream: IO[str] | None = None) -> Iterator[Step]:
    """Yield the step of a command: in a run, the current step; on the command line, a new step in the artifacts.

    On the command line, the notes of the step are shown, and at the end its directory.

    Args:
        artifacts: the directory for the step; None for `$ARTIFACT_DIR` or `artifacts/toolbox`.
        stream: where the notes are shown; None for standard output.
    """
    current = steps.current()
    if current is not None:
        yield current
        return
    with live_view.view(stream) as view:

        def show(event: Event) -> None:
            if isinstance(event, Note):  # the command line itself prints the result or the error
                view.show(event)

        with (
            steps.entered(session.step_outside_run([show], artifacts=artifacts)),
            steps.opened(name, kind=StepKind.COMMAND) as new,
        ):
            try:
                yield new
            finally:
                new.recorder.sweep(new.identity, new.directory)
                view.line(f"artifacts: {new.directory}")
