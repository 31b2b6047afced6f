"""Tells which receivers of the block `notifications` get the messages of a run."""

from __future__ import annotations

from typing import Final, Protocol

from toolbox.config.configuration import Configuration
from toolbox.config.contracts.notifications import Contract, Entry
from toolbox.ground.system import ci_job, environ
from toolbox.orchestration import storing

BLOCK: Final = "notifications"


class Requested(Protocol):
    """The part of a request that decides whether a run counts: `toolbox.orchestration.request.RunRequest`."""

    @property
    def is_from_outside(self) -> bool:
        """Whether a comment requested the run."""

    @property
    def is_whole(self) -> bool:
        """Whether the run tests all cells."""


def of(configuration: Configuration, request: Requested) -> dict[str, Entry]:
    """Return the receivers of the messages of a run, by name; none if the run does not count.

    A run counts if a CI system or `$TOPGALLANT_NOTIFY` started it, if it is part of the baseline, and if it tests all
    cells. So a run on a laptop or for a pull request says nothing, and needs no secret of a receiver.

    Raises:
        ConfigurationError: the block is wrong.
    """
    requested = environ.get(environ.NOTIFY)
    is_automated = requested == "true" or (requested is None and ci_job.is_automated())
    if not (is_automated and request.is_whole):
        return {}
    if not storing.is_baseline(configuration, is_from_outside=request.is_from_outside):
        return {}
    return configuration.block(BLOCK, Contract).entries
