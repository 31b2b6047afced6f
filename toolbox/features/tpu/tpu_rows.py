"""Describes the TPUs of a project as rows of a table, for `tpu list`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from toolbox.config import prices
from toolbox.config.prices import PriceList
from toolbox.features.tpu import api_endpoint
from toolbox.features.tpu.api import TpuApi
from toolbox.features.tpu.tpu_states import Location, Node, QueuedResource
from toolbox.ground.model.prices import Rental, Tier
from toolbox.ground.model.resources import Owner, expiry_of

COLUMNS: Final = (
    "name",
    "kind",
    "zone",
    "type",
    "tier",
    "state",
    "health",
    "owner",
    "run",
    "age_hours",
    "expires",
    "usd_per_hour",
)


def of_project(endpoint: str, place: Location) -> list[dict[str, Any]]:
    """Return a row for each TPU node, and for each queued resource without nodes."""
    with TpuApi(api_endpoint.parse(endpoint)) as api:
        view = api.view(place)
    price_list = prices.load()
    now = datetime.now(UTC)
    found: list[Node | QueuedResource] = [*view.nodes.values()]
    with_nodes = {node.queued_resource for node in view.nodes.values()}
    found += [queued for name, queued in view.queued_resources.items() if name not in with_nodes]
    return [_row(each, price_list, now) for each in sorted(found, key=lambda each: each.name)]


def _row(tpu: Node | QueuedResource, price_list: PriceList, now: datetime) -> dict[str, Any]:
    owner = Owner.from_labels(tpu.labels)
    zone = tpu.name.split("/")[3]
    age = (now - tpu.created).total_seconds() / 3600 if tpu.created is not None else None
    slices = len(tpu.nodes) if isinstance(tpu, QueuedResource) else 1
    is_paid = isinstance(tpu, Node)
    return {
        "name": tpu.id,
        "kind": "node" if isinstance(tpu, Node) else "queued resource",
        "zone": zone,
        "type": tpu.accelerator_type if slices == 1 else f"{slices}x {tpu.accelerator_type}",
        "tier": tpu.tier,
        "state": tpu.state,
        "health": tpu.health if isinstance(tpu, Node) else None,
        "owner": f"{owner.user}@{owner.host}" if owner is not None else None,
        "run": owner.run if owner is not None else None,
        "age_hours": round(age, 2) if age is not None else None,
        "expires": expiry_of(tpu.labels),
        "usd_per_hour": _price(tpu.accelerator_type, zone, price_list, tpu.tier) if is_paid else None,
    }


def _price(type_: str, zone: str, price_list: PriceList, tier: Tier) -> float | None:
    """Return the price of a node for one hour; None if it is unknown."""
    try:
        rental = Rental.of_tpu(type_, zone=zone, tier=tier)
    except ValueError:
        return None
    return price_list.price([rental]).per_hour
