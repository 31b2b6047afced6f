"""List the remote resources that runs and commands have created, and delete the resources that are left."""

from __future__ import annotations

from typing import Annotated, Literal

from toolbox.commands import _resources
from toolbox.interface import options
from toolbox.interface.options import Overrides, Presets
from toolbox.interface.signature import Help

Format = options.Format[Literal["text", "json", "csv"]]
Project = Annotated[
    str | None,
    Help(
        "the project whose targets and clusters are searched for labels of Topgallant; when left out, only the ledgers "
        "are read."
    ),
]


class Resources:
    """List the remote resources that runs and commands have created, and delete the resources that are left."""

    def list(
        self,
        project: Project = None,
        *,
        presets: Presets = None,
        overrides: Overrides = None,
        format: Format = "text",  # noqa: A002  # the words of the command line
    ) -> str | None:
        """List the remote resources that may exist: those on the ledgers of this user, and those found by labels."""
        return _resources.show(_resources.search(project, presets, overrides), format)

    def reap(
        self,
        project: Project = None,
        *,
        presets: Presets = None,
        overrides: Overrides = None,
        older_than: str | None = None,
        dry_run: bool = False,
        format: Format = "text",  # noqa: A002
    ) -> int:
        """
        Delete the remote resources of runs that have ended, and all others that have expired.

        The resources of a run that is being executed on this machine are never deleted. The exit code is 3 if a
        deletion failed, or if a ledger, a target or a cluster could not be searched.

        Args:
            older_than: delete all resources of this age or older, and no others, as in 90m, 2h or 1.5d. When left out,
                the resources of a run that has ended are deleted at any age, and others after their time to live.
            dry_run: only show what would be deleted, and why the other resources would be kept.
        """
        seconds = _resources.seconds(older_than) if older_than is not None else None
        leftovers = _resources.search(project, presets, overrides)
        return _resources.reap(leftovers, seconds, format, dry_run=dry_run)
