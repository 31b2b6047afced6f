"""Finds the forge or CI system in one of whose jobs this process runs."""

from __future__ import annotations

from typing import Final

from toolbox.ground.extensions import discovery, loading
from toolbox.ground.extensions.protocols import FORGES, Forge
from toolbox.ground.model.errors import ConfigurationError, UsageError
from toolbox.ground.model.nearest import did_you_mean

TERMINAL: Final = "terminal"
"""The forge of a process that runs in no job."""


def find(name: str | None = None) -> Forge:
    """Return the forge of this job; the forge `terminal` if this is no job.

    Args:
        name: the name of the forge; None to detect it by the environment variables of the job.

    Raises:
        UsageError: there is no such forge, or several forges have found their variables.
        ConfigurationError: a forge of the workspace or of a package is broken.
    """
    available = discovery.available(FORGES.folder)
    if name is not None:
        if name not in available:
            raise UsageError(f"unknown forge `{name}`: {did_you_mean(name, available, label='forges')}")
        return _loaded(name)
    current = [each for each in available if each != TERMINAL and _loaded(each).is_current()]
    if len(current) > 1:
        raise UsageError(f"this may be a job of {' or '.join(current)}: name one with --forge")
    return _loaded(current[0] if current else TERMINAL)


def _loaded(name: str) -> Forge:
    try:
        return loading.instance(FORGES, discovery.available(FORGES.folder)[name])
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
