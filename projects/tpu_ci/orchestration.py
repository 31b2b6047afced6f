"""Runs the test suites of a Git repository on this machine and on TPUs, and shows each test case."""

from collections.abc import Mapping
from pathlib import Path

from toolbox.api import Configuration, config, git, matrix, run


def resolve(configuration: Configuration) -> Mapping[str, object]:
    """Return the commit of the revision, so that all cells test the same commit, and the address of the repository.

    The address of a directory of this machine becomes its absolute path.
    """
    url = str(configuration.get("repository.url"))
    if "://" not in url and ":" not in url:
        url = str((configuration.root / Path(url).expanduser()).resolve())
    token = configuration.get("repository.token")
    commit = git.commit_of(url, str(configuration.get("repository.revision")), token=token)
    return {"repository.url": url, "repository.commit": commit}


def prepare() -> None:
    """Record the state of the machines."""
    if config.project.get_config("host.capture_state.enabled"):
        for hosts in matrix.machines():
            run.run_toolbox_from_config("host", "capture_state", extra={"hosts": hosts})


def test() -> None:
    """Run the suites of the matrix."""
    matrix.run()
