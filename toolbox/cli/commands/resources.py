"""List the remote resources that runs and commands have created, and delete the resources that are left."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Literal

from toolbox.config import overrides as overrides_text
from toolbox.ground.interface import options
from toolbox.ground.interface.options import Overrides, Presets
from toolbox.ground.interface.signature import Help
from toolbox.ground.model.errors import UsageError
from toolbox.ground.model.foreign_text import printable
from toolbox.ground.model.quantities import SecondsOrZero
from toolbox.ground.system import redaction
from toolbox.orchestration import request
from toolbox.orchestration.leftovers import Search
from toolbox.orchestration.request import RunRequest
from toolbox.reports.terminal import leftover_table

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
        return leftover_table.show(_search(project, presets, overrides), format)

    def reap(
        self,
        project: Project = None,
        *,
        presets: Presets = None,
        overrides: Overrides = None,
        older_than: SecondsOrZero | None = None,
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
        found = _search(project, presets, overrides)
        return leftover_table.reap(found, older_than, format, dry_run=dry_run)


def _search(project: str | None, presets: Sequence[str] | None, overrides: str | None) -> Search:
    """Search for remote resources, and print what could not be searched to stderr.

    Raises:
        UsageError: the configuration of the project is wrong, or presets are given without a project.
    """
    if project is None and (presets or overrides):
        raise UsageError("--presets and --overrides need a project: give its name, as in `resources list NAME`")
    found = Search()
    configuration = None
    if project is not None:  # a wrong name is reported before anything is searched
        files, values = overrides_text.parse(overrides)
        configuration = request.configure(RunRequest(project, presets or (), files, values))[1]
        redaction.current().add(configuration.secret_values())
    found.add_ledgers()
    if configuration is not None:
        found.add_labelled(configuration)
    for fault in found.faults:
        print(printable(redaction.current()(fault)), file=sys.stderr)
    return found
