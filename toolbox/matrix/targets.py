"""Reads the targets of a configuration: the places where cells run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from toolbox.config.configuration import Configuration
from toolbox.extensions import loading, protocols
from toolbox.extensions.protocols import Backend, MachineTarget, VerifiableTarget
from toolbox.matrix.specification import TargetsBlock
from toolbox.model.clusters import Access
from toolbox.model.errors import ConfigurationError
from toolbox.model.workloads import CollectLimits, TargetContext, Workload
from toolbox.runs.layout import RunDirectory
from toolbox.runs.recorder import Recorder

BLOCK: Final = "targets"


@dataclass(frozen=True, slots=True)
class PlannedTarget:
    """A place where cells run.

    Args:
        capacity: the amount of each resource that the target has, by the label of the resource. The resource `jobs` is
            the number of cells that run at once. A resource that is missing is unlimited.
        cost_per_hour: the price of one attempt per hour; None if not configured.
        limits: the limits of the files that are fetched from one attempt.
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
        """Return the target as it is written to `plan.json`."""
        return {
            "backend": self.backend,
            "address": self.address,
            "accelerator": self.accelerator,
            "cost_per_hour": self.cost_per_hour,
        }

    @property
    def address(self) -> str | None:
        """The address for Ansible, as `[USER@]HOST[:PORT]`; None for this machine, and for other kinds of targets."""
        return self.description.address(self.name) if isinstance(self.description, MachineTarget) else None

    @property
    def is_machine(self) -> bool:
        """Whether the target is one machine, which toolbox commands can inspect and prepare."""
        return isinstance(self.description, MachineTarget)

    def can_hold(self, resources: Mapping[str, int]) -> bool:
        """Return whether the target has enough capacity for a cell when nothing else runs there."""
        return all(count <= self.capacity.get(label, count) for label, count in resources.items())

    def open(
        self,
        recorder: Recorder,
        clusters: Mapping[str, Access],
        *,
        variables: Mapping[str, str] | None = None,
        notify: Callable[[str], None] = lambda _: None,
    ) -> Backend:
        """Return the backend that executes the attempts of a run on this target.

        Args:
            variables: environment variables for workloads that run on this machine.
            notify: called, from any thread, with the name of an attempt whose status has changed.
        """
        context = TargetContext(
            name=self.name,
            run=recorder.root.name,
            mark=RunDirectory(recorder.root).target(self.name),
            variables=variables or {},
            secrets=recorder.redactor.secrets,
            notify=notify,
            ledger=recorder.ledger,
            clusters=clusters,
            limits=self.limits,
        )
        return self.description.open(context)


def read(configuration: Configuration) -> dict[str, PlannedTarget]:
    """Return the targets of a configuration, by name. `local` is this machine, unless the configuration defines it.

    Raises:
        ConfigurationError: the description of a target is wrong.
    """
    targets = {}
    for name, target in configuration.block(BLOCK, TargetsBlock).root.items():
        try:
            spec = {"backend": target.backend, **(target.model_extra or {})}
            description = loading.parse(protocols.BACKENDS, spec)
            if isinstance(description, MachineTarget):
                description.address(name)
        except ValueError as error:
            path = f'{BLOCK}["{name}"]'
            raise ConfigurationError(f"{configuration.location(path)}: the target `{name}`: {error}") from None
        targets[name] = PlannedTarget(
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
    return {"local": PlannedTarget("local", "local", local), **targets}


def verify(
    targets: Mapping[str, PlannedTarget],
    clusters: Mapping[str, Access | None],
    workloads: Mapping[str, Iterable[Workload]],
) -> None:
    """Check that workloads can run on their targets, as far as this can be checked before anything starts.

    Args:
        workloads: the workloads that may run on each target.
        clusters: how to reach the clusters of the run, by name; None for a cluster that is not known before the run:
            it is from a pool, or the run creates it.

    Raises:
        ConfigurationError: the configuration or a permission must be changed first.
        InfrastructureError: a target does not answer.
    """
    for name, target in targets.items():
        if isinstance(target.description, VerifiableTarget):
            target.description.verify(name, clusters, workloads.get(name, ()))
