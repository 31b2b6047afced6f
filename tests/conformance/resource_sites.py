"""The sites of the tests of remote resources: a remote side with resources of one kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from toolbox.ground.model.resources import Owner, Resource


@dataclass(frozen=True, slots=True)
class ResourceSite:
    """A remote side with resources of one kind.

    Args:
        create: creates a resource with the labels of an owner, and returns its description.
        names: returns the names of the existing resources.
        is_labelled: whether the remote side stores labels.
    """

    create: Callable[[Owner], Resource]
    names: Callable[[], list[str]]
    is_labelled: bool = True
