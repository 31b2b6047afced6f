"""The rules that all requests share: names of resources, fields of nodes, and pages of lists.

The name of a resource is `projects/PROJECT/locations/ZONE/KIND/ID`.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from google.cloud.tpu_v2 import types

from tests.features.tpu.servers.tpu import catalog, refusals

_PARENT: Final = re.compile(r"projects/([^/]+)/locations/([^/]+)")
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
_MAX_PAGE: Final = 100

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Parent:
    """A project and a zone. The zone `-` means all zones."""

    project: str
    zone: str

    def __str__(self) -> str:
        return f"projects/{self.project}/locations/{self.zone}"

    def contains(self, name: str) -> bool:
        """Say whether a resource is in this project and zone."""
        return name.startswith(f"projects/{self.project}/") and self.zone in ("-", zone_of(name))


def zone_of(name: str) -> str:
    """Return the zone in a name, or an empty text."""
    match = _PARENT.match(name)
    return match[2] if match else ""


def id_of(name: str) -> str:
    """Return the last part of a name."""
    return name.rpartition("/")[2]


def project_number(project: str) -> str:
    """Return the number that Google's service would have given to a project."""
    return str(10**11 + zlib.crc32(project.encode()))


def by_number(name: str) -> str:
    """Return a name with the number of the project instead of the id. A request about one resource may contain both."""
    _, project, *rest = name.split("/")
    return "/".join(["projects", project_number(project), *rest])


def find(resources: Mapping[str, T], name: str) -> T:
    """Return the resource with a name.

    Raises:
        ApiError: it does not exist.
    """
    parent(name)
    for other, resource in resources.items():
        if name in (other, by_number(other)):
            return resource
    raise refusals.not_found(name)


def parent(name: str, *, may_be_all: bool = False) -> Parent:
    """Return the project and zone of a name.

    Args:
        may_be_all: whether the zone may be `-`.

    Raises:
        ApiError: the name has no such beginning, or the zone does not exist.
    """
    match = _PARENT.match(name)
    if match is None:
        raise refusals.invalid_field("parent", f"'{name}' does not match projects/*/locations/*")
    found = Parent(match[1], match[2])
    if found.zone not in catalog.ZONES and not (may_be_all and found.zone == "-"):
        raise refusals.unknown_zone(found.zone, found.project)
    return found


def page(items: Sequence[T], size: int, token: str) -> tuple[Sequence[T], str]:
    """Return the page that a token names, and the token of the next page, which is empty after the last one.

    Raises:
        ApiError: the token or size is invalid.
    """
    if size < 0:
        raise refusals.invalid_field("page_size", "must not be negative")
    try:
        start = int(base64.b64decode(token, altchars=b"-_", validate=True) or b"0")
    except (ValueError, binascii.Error):
        raise refusals.invalid_field("page_token", "is invalid") from None
    end = start + (min(size, _MAX_PAGE) or _MAX_PAGE)
    return items[start:end], base64.urlsafe_b64encode(str(end).encode()).decode() if end < len(items) else ""


def check_node_id(value: str) -> None:
    """Check the id of a new node."""
    if not _NODE_ID.fullmatch(value):
        raise refusals.invalid_field("node_id", f"'{value}' does not match {_NODE_ID.pattern}")


def check_queued_resource_id(value: str) -> None:
    """Check the id of a new queued resource."""
    if not _QUEUED_RESOURCE_ID.fullmatch(value):
        raise refusals.invalid_field("queued_resource_id", f"'{value}' does not match {_QUEUED_RESOURCE_ID.pattern}")


def check_new_node(node: types.Node) -> None:
    """Check the fields of a node that a request contains, except for its accelerator type."""
    if not node.runtime_version:
        raise refusals.invalid_field("node.runtime_version", "is required")
    if node.runtime_version not in catalog.RUNTIME_VERSIONS:
        raise refusals.bad_request(f'The runtime version "{node.runtime_version}" was not found')
    if node.network_configs and types.Node.pb(node).HasField("network_config"):
        raise refusals.bad_request("network_config and network_configs are mutually exclusive")
    check_update(node)


def check_update(node: types.Node) -> None:
    """Check the fields that an update can change too."""
    if len(node.description) > _MAX_DESCRIPTION:
        raise refusals.invalid_field("node.description", f"is longer than {_MAX_DESCRIPTION} characters")
    _check_labels(dict(node.labels))
    _check_metadata(dict(node.metadata))


def _check_labels(labels: Mapping[str, str]) -> None:
    if len(labels) > _MAX_LABELS:
        raise refusals.invalid_field("node.labels", f"has more than {_MAX_LABELS} labels")
    for key, value in labels.items():
        if not _LABEL_KEY.fullmatch(key):
            raise refusals.invalid_field("node.labels", f"key '{key}' does not match {_LABEL_KEY.pattern}")
        if not _LABEL_VALUE.fullmatch(value):
            raise refusals.invalid_field("node.labels", f"value '{value}' does not match {_LABEL_VALUE.pattern}")


def _check_metadata(metadata: Mapping[str, str]) -> None:
    for key, value in metadata.items():
        if not _METADATA_KEY.fullmatch(key):
            raise refusals.invalid_field("node.metadata", f"key '{key}' does not match {_METADATA_KEY.pattern}")
        if len(value.encode()) > _MAX_METADATA_VALUE:
            raise refusals.invalid_field("node.metadata", f"value of '{key}' is longer than 256 KB")
    if sum(len(key) + len(value.encode()) for key, value in metadata.items()) > _MAX_METADATA:
        raise refusals.invalid_field("node.metadata", "is longer than 512 KB in total")
