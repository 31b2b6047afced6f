"""Finds the files of the tested revision in the checkout of this machine."""

from __future__ import annotations

from pathlib import Path

from toolbox.ground.system import git
from toolbox.records.runs.layout import RunDirectory
from toolbox.records.runs.run_state import RunState
from toolbox.reports.forge.source_locations import RepositoryFiles


def of_run(run: RunState) -> RepositoryFiles:
    """Return the files of the revision that a run tested; no files if the checkout here does not have the revision."""
    revision = RunDirectory(run.directory).read_request().get("revision")
    return of_revision(revision if isinstance(revision, str) else run.revision)


def of_revision(revision: str) -> RepositoryFiles:
    """Return the files of a revision; no files if the checkout of the working directory does not have the revision.

    Args:
        revision: the full id of a commit; `+` at its end says that there were uncommitted changes.
    """
    directory = Path.cwd()
    return RepositoryFiles(git.files_of(directory, revision.removesuffix("+")), (str(directory),))
