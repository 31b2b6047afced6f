"""Where the artifacts go: `env.ARTIFACT_DIR`, in the run `env.RUN`.

`with env.NextArtifactDir("deploy"):` makes a directory inside it, which is `env.ARTIFACT_DIR` there. The directory
belongs to the thread: a task of `run.Parallel` has one of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from toolbox.model.events import StepKind
from toolbox.orchestration import session
from toolbox.runs import steps

ARTIFACT_DIR: Path
RUN: str


def __getattr__(name: str) -> Path | str:
    """Return the current directory as `env.ARTIFACT_DIR`, and the name of the run as `env.RUN`, when they are read."""
    if name == "ARTIFACT_DIR":
        return session.step().directory
    if name == "RUN":
        return session.step().recorder.root.name
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@contextmanager
def NextArtifactDir(name: str) -> Iterator[Path]:  # noqa: N802  # the name that orchestrations know
    """Run the body as a step in the next numbered directory, which is `env.ARTIFACT_DIR` there."""
    with steps.entered(session.step()), steps.opened(session.masked(name), kind=StepKind.GROUP) as step:
        yield step.directory
