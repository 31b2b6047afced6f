"""Finds the TPUs with labels of Topgallant, of any owner, so that leftovers can be deleted without a ledger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta

from toolbox.features.tpu import tpu_request
from toolbox.features.tpu.api import TpuApi
from toolbox.features.tpu.tpu_description import TpuDescription
from toolbox.features.tpu.tpu_states import Location
from toolbox.ground.model.errors import ToolboxError
from toolbox.ground.model.resources import OpenResource, Owner, Resource, expiry_of


def find(description: TpuDescription) -> Iterator[OpenResource]:
    """Yield the nodes and queued resources in the zones of a description that have labels of Topgallant.

    Raises:
        ToolboxError: the API does not answer, or refuses the request, in one of the zones. All others are searched.
    """
    errors: list[ToolboxError] = []
    with TpuApi(description.endpoint) as api:
        for zone in description.zone:
            try:
                yield from list(_in_zone(api, description, zone))
            except ToolboxError as error:
                errors.append(error)
    if errors:
        raise errors[0]


def _in_zone(api: TpuApi, description: TpuDescription, zone: str) -> Iterator[OpenResource]:
    view = api.view(Location(description.project, zone))
    for queued in view.queued_resources.values():
        yield from _owned(tpu_request.QUEUED_RESOURCE, queued.name, queued.labels, queued.created, description)
    for node in view.nodes.values():
        if not node.queued_resource:  # a queued resource is deleted with its nodes
            yield from _owned(tpu_request.NODE, node.name, node.labels, node.created, description)


def _owned(
    kind: str, name: str, labels: Mapping[str, str], created: datetime | None, description: TpuDescription
) -> Iterable[OpenResource]:
    """Return the resource, if its labels name an owner."""
    owner = Owner.from_labels(labels)
    if owner is None:
        return []
    begun = created or datetime.now(UTC)
    expires = expiry_of(labels) or begun + timedelta(seconds=description.ttl)
    ttl = max(0.0, (expires - begun).total_seconds())
    resource: Resource = tpu_request.ledger_entry(kind, name, description.api_endpoint, ttl)
    return [OpenResource(resource, owner, begun, expires, is_created=True)]
