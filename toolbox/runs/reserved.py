"""The clusters of a run as its journal tells of them: to go on with them, and to say how they stand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from toolbox.model.clusters import Access
from toolbox.model.events import (
    ClusterChosen,
    Event,
    LeaseAwaited,
    LeaseLost,
    ResourceMade,
    ResourcePlanned,
    ResourceRemoved,
)


@dataclass(slots=True)
class Reserved:
    """A cluster of a run.

    Args:
        chosen: which it is; None where none was had yet.
        trouble: for whom the run waits, or why it is the run's no longer.
        planned: what was to be made, and may be there; None where nothing is.
        is_made: whether it is there, whole.
    """

    name: str
    chosen: ClusterChosen | None = None
    trouble: str = ""
    planned: ResourcePlanned | None = None
    is_made: bool = False

    def __str__(self) -> str:
        """Return what a person should know of it."""
        if self.planned is not None:
            reach = f"export KUBECONFIG={self.planned.kubeconfig}" if self.is_made else "not whole"
            return f"{self.planned.resource} ({reach}); it is removed by: {self.planned.removal}"
        return self.trouble or (_reached(self.chosen) if self.chosen is not None else "")


def derive(events: Iterable[Event]) -> dict[str, Reserved]:
    """Return the clusters of a run by their names in its configuration."""
    found: dict[str, Reserved] = {}
    names: dict[str, str] = {}
    for event in events:
        match event:
            case LeaseAwaited() | LeaseLost() | ClusterChosen() | ResourcePlanned():
                cluster = found.setdefault(event.cluster, Reserved(event.cluster))
                _take(cluster, event)
                if isinstance(event, ResourcePlanned):
                    names[event.resource] = event.cluster
            case ResourceMade() | ResourceRemoved() if event.resource in names:
                cluster = found[names[event.resource]]
                cluster.is_made = isinstance(event, ResourceMade)
                cluster.planned = cluster.planned if cluster.is_made else None
    return found


def _take(cluster: Reserved, event: LeaseAwaited | LeaseLost | ClusterChosen | ResourcePlanned) -> None:
    match event:
        case LeaseAwaited() | LeaseLost():
            cluster.trouble = event.message
        case ClusterChosen():
            cluster.chosen, cluster.trouble = event, ""
        case ResourcePlanned():
            cluster.planned, cluster.is_made = event, False


def _reached(chosen: ClusterChosen) -> str:
    parts = {"kubeconfig": chosen.kubeconfig, "context": chosen.context, "namespace": chosen.namespace}
    said = ", ".join(f"{name} {value}" for name, value in parts.items() if value)
    return f"{chosen.member} of its pool ({said})" if chosen.member else said


def access_of(chosen: ClusterChosen) -> Access:
    """Return how a cluster that was chosen is reached."""
    return Access(chosen.kubeconfig, chosen.context, chosen.namespace)
