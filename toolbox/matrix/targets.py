"""Targets: where cells run, as the configuration describes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from toolbox.config.configuration import Configuration
from toolbox.extensions import loading, protocols
from toolbox.matrix.specification import TargetsBlock
from toolbox.model.clusters import Access
from toolbox.model.errors import ConfigurationError
from toolbox.model.workloads import CollectLimits, Workload

BLOCK: Final = "targets"


@dataclass(frozen=True, slots=True)
class Target:
    """A place where cells run.

    Args:
        capacity: how much of each label it has; what is not named has no limit. `jobs` is how many cells at once.
        accelerator: what it computes with; None where nobody has said.
        cost_per_hour: of one attempt on it, likewise.
        limits: of what one attempt may leave on it.
    """

    name: str
    backend: str
    description: protocols.Target
    labels: tuple[str, ...] = ()
    capacity: Mapping[str, int] = field(default_factory=dict)
    accelerator: str | None = None
    cost_per_hour: float | None = None
    limits: CollectLimits = field(default_factory=CollectLimits)

    def as_json(self) -> dict[str, Any]:
        """Return the target as `plan.json` holds it."""
        return {
            "backend": self.backend,
            "address": self.description.address(self.name),
            "accelerator": self.accelerator,
            "cost_per_hour": self.cost_per_hour,
        }

    def can_hold(self, resources: Mapping[str, int]) -> bool:
        """Tell whether it could run a cell that takes so much, if nothing else ran there."""
        return all(count <= self.capacity.get(label, count) for label, count in resources.items())


def read(configuration: Configuration) -> dict[str, Target]:
    """Return the targets of a configuration by name. `local` is this machine, if nothing else is called so.

    Raises:
        ConfigurationError: one is not described well.
    """
    found = {}
    for name, target in configuration.block(BLOCK, TargetsBlock).root.items():
        try:
            spec = {"backend": target.backend, **(target.model_extra or {})}
            description = loading.parse(protocols.BACKENDS, spec)
            description.address(name)
        except ValueError as error:
            path = f'{BLOCK}["{name}"]'
            raise ConfigurationError(f"{configuration.location(path)}: the target `{name}`: {error}") from None
        found[name] = Target(
            name,
            target.backend,
            description,
            tuple(target.labels),
            target.capacity,
            target.accelerator,
            target.cost_per_hour,
            CollectLimits(target.collect_bytes, target.collect_files),
        )
    local = loading.parse(protocols.BACKENDS, {"backend": "local"})
    return {"local": Target("local", "local", local), **found}


def verify(
    targets: Mapping[str, Target], clusters: Mapping[str, Access | None], workloads: Mapping[str, Iterable[Workload]]
) -> None:
    """See that cells can be run on targets, as far as that can be known before anything is begun.

    Args:
        workloads: what may be run on each.
        clusters: how to reach the clusters of the run, by their names; None where that is not known yet.

    Raises:
        ConfigurationError: something has to be changed first.
        InfrastructureError: a target cannot be asked.
    """
    for name, target in targets.items():
        target.description.verify(name, clusters, workloads.get(name, ()))
