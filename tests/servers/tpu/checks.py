"""The rules for ids, labels and metadata that the service applies to a request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from google.cloud.tpu_v2 import types

from tests.servers.tpu import catalog, refusals
from tests.servers.tpu.names import Parent, parent_of

# The id of a node becomes part of the names of its VMs, so it follows the rule for names of Compute Engine.
_NODE_ID: Final = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_QUEUED_RESOURCE_ID: Final = re.compile(r"[A-Za-z0-9_.~+%-]{1,128}")
_LABEL_KEY: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_VALUE: Final = re.compile(r"[a-z0-9_-]{0,63}")
_METADATA_KEY: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_MAX_LABELS: Final = 64
_MAX_DESCRIPTION: Final = 512
_MAX_METADATA_VALUE: Final = 256 * 1024
_MAX_METADATA: Final = 512 * 1024


def parent(name: str, *, may_be_all: bool = False) -> Parent:
    """Return the project and zone of a name.

    Args:
        may_be_all: whether the zone may be `-`.

    Raises:
        ApiError: the name has no such beginning, or the zone does not exist.
    """
    found = parent_of(name)
    if found is None:
        raise refusals.invalid_field("parent", f"'{name}' does not match projects/*/locations/*")
    if found.zone not in catalog.ZONES and not (may_be_all and found.zone == "-"):
        raise refusals.unknown_zone(found.zone, found.project)
    return found


def node_id(value: str) -> None:
    """Check the id of a new node."""
    if not _NODE_ID.fullmatch(value):
        raise refusals.invalid_field("node_id", f"'{value}' does not match {_NODE_ID.pattern}")


def queued_resource_id(value: str) -> None:
    """Check the id of a new queued resource."""
    if not _QUEUED_RESOURCE_ID.fullmatch(value):
        raise refusals.invalid_field("queued_resource_id", f"'{value}' does not match {_QUEUED_RESOURCE_ID.pattern}")


def node(found: types.Node) -> None:
    """Check the fields of a node that a request contains, except for its accelerator type."""
    if not found.runtime_version:
        raise refusals.invalid_field("node.runtime_version", "is required")
    if found.runtime_version not in catalog.RUNTIME_VERSIONS:
        raise refusals.bad_request(f'The runtime version "{found.runtime_version}" was not found')
    if found.network_configs and types.Node.pb(found).HasField("network_config"):
        raise refusals.bad_request("network_config and network_configs are mutually exclusive")
    changeable(found)


def changeable(found: types.Node) -> None:
    """Check the fields that an update can change too."""
    if len(found.description) > _MAX_DESCRIPTION:
        raise refusals.invalid_field("node.description", f"is longer than {_MAX_DESCRIPTION} characters")
    _labels(dict(found.labels))
    _metadata(dict(found.metadata))


def _labels(labels: Mapping[str, str]) -> None:
    if len(labels) > _MAX_LABELS:
        raise refusals.invalid_field("node.labels", f"has more than {_MAX_LABELS} labels")
    for key, value in labels.items():
        if not _LABEL_KEY.fullmatch(key):
            raise refusals.invalid_field("node.labels", f"key '{key}' does not match {_LABEL_KEY.pattern}")
        if not _LABEL_VALUE.fullmatch(value):
            raise refusals.invalid_field("node.labels", f"value '{value}' does not match {_LABEL_VALUE.pattern}")


def _metadata(metadata: Mapping[str, str]) -> None:
    for key, value in metadata.items():
        if not _METADATA_KEY.fullmatch(key):
            raise refusals.invalid_field("node.metadata", f"key '{key}' does not match {_METADATA_KEY.pattern}")
        if len(value.encode()) > _MAX_METADATA_VALUE:
            raise refusals.invalid_field("node.metadata", f"value of '{key}' is longer than 256 KB")
    if sum(len(key) + len(value.encode()) for key, value in metadata.items()) > _MAX_METADATA:
        raise refusals.invalid_field("node.metadata", "is longer than 512 KB in total")
