"""Finds the files of the tested revision: in the checkout of this machine, or on the forge."""

from __future__ import annotations

import logging
from pathlib import Path

from toolbox.extensions.protocols import ReportingPullRequests
from toolbox.model.errors import InfrastructureError, describe
from toolbox.reports.forge.source_locations import RepositoryFiles
from toolbox.runs.layout import RunDirectory
from toolbox.runs.run_state import RunState
from toolbox.system import git

log = logging.getLogger(__name__)


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


def on_forge(pull_requests: ReportingPullRequests, revision: str) -> RepositoryFiles:
    """Return the files of a revision that the forge has; no files, and a warning, if the forge does not list them."""
    try:
        return RepositoryFiles(pull_requests.files(revision), (str(Path.cwd()),))
    except InfrastructureError as error:
        log.warning("there are no annotations, because the files of %s are unknown: %s", revision, describe(error))
        return RepositoryFiles(())
