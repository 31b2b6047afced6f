"""`env.ARTIFACT_DIR` is the directory for the artifacts of the current step, and `env.RUN` is the name of the run.

In the body of `with env.NextArtifactDir("deploy"):`, `env.ARTIFACT_DIR` is a new directory inside the previous one.
Each task of `run.Parallel` has its own `env.ARTIFACT_DIR`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from toolbox.ground.model.events import StepKind
from toolbox.orchestration import session
from toolbox.records.runs import steps

ARTIFACT_DIR: Path
RUN: str


def __getattr__(name: str) -> Path | str:
    """Compute `env.ARTIFACT_DIR` and `env.RUN` on each access, because the current step changes."""
    if name == "ARTIFACT_DIR":
        return session.step().directory
    if name == "RUN":
        return session.step().recorder.root.name
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@contextmanager
def NextArtifactDir(name: str) -> Iterator[Path]:  # noqa: N802  # orchestrations use this name
    """Run the body as a step with the next numbered directory, which is `env.ARTIFACT_DIR` inside the body."""
    with steps.entered(session.step()), steps.opened(session.masked(name), kind=StepKind.GROUP) as step:
        yield step.directory
