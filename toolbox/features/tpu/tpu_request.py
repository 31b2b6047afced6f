"""What is requested from the TPU API: one node, or one queued resource with its nodes, and its entry in a ledger."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from toolbox.features.tpu import api_endpoint
from toolbox.features.tpu.tpu_description import TpuDescription
from toolbox.features.tpu.tpu_states import Location
from toolbox.ground.model.resources import Resource
from toolbox.ground.system import environ

NODE: Final = "tpu_node"
"""The kind of a node in the ledger: the module `toolbox/features/tpu/resources/tpu_node.py`."""
QUEUED_RESOURCE: Final = "tpu_queued_resource"
KINDS: Final = (NODE, QUEUED_RESOURCE)


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
    def resource(self) -> Resource:
        """The entry of the ledger for the node, or for the queued resource that creates the nodes."""
        tpu = self.description
        return ledger_entry(QUEUED_RESOURCE if tpu.is_queued else NODE, self.full_name, tpu.api_endpoint, tpu.ttl)

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


def ledger_entry(kind: str, name: str, endpoint: str, ttl: float) -> Resource:
    """Return the entry of the ledger for a node or a queued resource.

    Args:
        name: the full name.
        endpoint: the address of the API, as in a description.
    """
    _, project, _, zone, _, own_name = name.split("/")
    command = [environ.program(), "tpu", "delete", own_name, f"--project={project}", f"--zone={zone}"]
    command += [f"--api_endpoint={endpoint}"] if endpoint != api_endpoint.DEFAULT else []
    return Resource(kind, name, {"name": name, "api_endpoint": endpoint}, ttl, shlex.join(command))
