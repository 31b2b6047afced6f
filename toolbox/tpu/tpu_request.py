"""What is requested from the TPU API: one node, or one queued resource with its nodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from toolbox.tpu.tpu_description import TpuDescription
from toolbox.tpu.tpu_states import Location


@dataclass(frozen=True, slots=True)
class TpuRequest:
    """A TPU to create in one zone.

    Args:
        name: the name of the node or of the queued resource, without the location.
        labels: the labels of the owner. The nodes also get those of the description.
        metadata: the metadata of the workers: the SSH key and the startup script.
    """

    name: str
    location: Location
    description: TpuDescription
    labels: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        """The full name of the node, or of the queued resource that creates the nodes."""
        is_queued = self.description.is_queued
        return self.location.queued_resource(self.name) if is_queued else self.location.node(self.name)

    @property
    def node_names(self) -> tuple[str, ...]:
        """The full names of the nodes, in the order of the slices. The API appends the number of the slice."""
        slices = self.description.slices
        names = [self.name] if slices == 1 else [f"{self.name}-{index}" for index in range(slices)]
        return tuple(map(self.location.node, names))

    @property
    def all_labels(self) -> Mapping[str, str]:
        """The labels of the nodes."""
        return {**self.description.labels, **self.labels}

    def in_zone(self, zone: str) -> TpuRequest:
        """Return the same request for another zone."""
        return dataclasses.replace(self, location=Location(self.location.project, zone))
