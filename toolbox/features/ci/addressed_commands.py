"""Leaves out the commands of a comment that are for other jobs or other programs, such as the commands of Prow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from toolbox.features.ci.slash import Line
from toolbox.ground.model.nearest import misspelled

_DETAILS: Final = ("var", "skip", "only", "cells", "cluster", "quarantine")


def for_job(commands: Iterable[Line], job: str) -> Iterator[Line]:
    """Yield the commands of a comment that are for a job.

    The commands after a `/test` of another job belong to the other job. Unknown commands belong to another program,
    unless they misspell a command of Topgallant.

    Args:
        job: the word after `/test` that addresses the job.
    """
    is_for_job = True
    for line in commands:
        if line.name == "test":
            is_for_job = line.rest.split(maxsplit=1)[:1] == [job]
        elif line.name not in _DETAILS and not misspelled(line.name, _DETAILS):
            continue
        if is_for_job:
            yield line
