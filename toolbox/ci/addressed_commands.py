"""Leaves out the commands of a comment that are for other jobs or other programs, such as the commands of Prow."""

from __future__ import annotations

import re
from typing import Final

from toolbox.model.nearest import misspelled

_DETAILS: Final = ("var", "skip", "only", "cells", "cluster", "quarantine")
_COMMAND = re.compile(r"/(?P<name>[\w-]+)[^\S\n]*(?P<word>\S*)")


def for_job(text: str, job: str) -> str:
    """Return a comment with empty lines in place of the commands that are not for a job.

    The commands after a `/test` of another job belong to the other job. Unknown commands belong to another program,
    unless they misspell a command of Topgallant.

    Args:
        job: the word after `/test` that addresses the job.
    """
    kept, is_for_job = [], True
    for line in text.splitlines():
        match = _COMMAND.match(line)
        is_command_for_job = is_for_job
        if match and match["name"] == "test":
            is_for_job = is_command_for_job = match["word"] == job
        elif match and match["name"] not in _DETAILS and not misspelled(match["name"], _DETAILS):
            is_command_for_job = False
        kept.append(line if is_command_for_job else "")
    return "\n".join(kept)
