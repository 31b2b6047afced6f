"""Names of resources: `projects/PROJECT/locations/ZONE/KIND/ID`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_PARENT: Final = re.compile(r"projects/([^/]+)/locations/([^/]+)")


@dataclass(frozen=True, slots=True)
class Parent:
    """A project and a zone. The zone `-` means all zones."""

    project: str
    zone: str

    def __str__(self) -> str:
        return f"projects/{self.project}/locations/{self.zone}"

    def contains(self, name: str) -> bool:
        """Say whether a resource is in this project and zone."""
        other = parent_of(name)
        return other is not None and other.project == self.project and self.zone in ("-", other.zone)


def parent_of(name: str) -> Parent | None:
    """Return the project and zone at the beginning of a name, or None."""
    match = _PARENT.match(name)
    return Parent(match[1], match[2]) if match else None


def id_of(name: str) -> str:
    """Return the last part of a name."""
    return name.rpartition("/")[2]
