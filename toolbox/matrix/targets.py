"""Reads the targets of a configuration: the places where cells run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from toolbox.config import paths
from toolbox.config import prices as price_files
from toolbox.config.configuration import Configuration
from toolbox.config.contracts.results import Contract as Results
from toolbox.config.prices import PriceList
from toolbox.ground.extensions import loading, protocols
from toolbox.ground.extensions.protocols import Backend, MachineTarget, PricedTarget, VerifiableTarget
from toolbox.ground.model.clusters import Access
from toolbox.ground.model.errors import ConfigurationError
from toolbox.ground.model.prices import Price
from toolbox.ground.model.workloads import CollectLimits, TargetContext, Workload
from toolbox.matrix.matrix_block import TargetBlock, TargetsBlock
from toolbox.records.runs.layout import RunDirectory
from toolbox.records.runs.recorder import Recorder

BLOCK: Final = "targets"
_RESULTS: Final = "results"


@dataclass(frozen=True, slots=True)
class PlannedTarget:
    """A place where cells run.

    Args:
        capacity: the amount of each resource that the target has, by the label of the resource. The resource `jobs` is
            the number of cells that run at once. A resource that is missing is unlimited.
        accelerator: the kind of accelerator that the records of the run name.
        price: the price of the target for one hour.
        shares_price: whether attempts that are on the target at the same time share its price. Otherwise each attempt
            rents accelerators of its own, and pays the whole price.
        limits: the limits of the files that are fetched from one attempt.
    """

    name: str
    backend: str
    description: protocols.Target
    labels: tuple[str, ...] = ()
    capacity: Mapping[str, int] = field(default_factory=dict)
    accelerator: str | None = None
    price: Price = field(default_factory=Price)
    shares_price: bool = True
    limits: CollectLimits = field(default_factory=CollectLimits)

    def as_json(self) -> dict[str, Any]:
        """Return the target as it is written to `plan.json`."""
        return {
            "backend": self.backend,
            "address": self.address,
            "accelerator": self.accelerator,
            "cost_per_hour": self.price.per_hour,
            "price": self.price.basis,
            "shares_price": self.shares_price,
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


def read(configuration: Configuration, frozen: Mapping[str, Price] | None = None) -> dict[str, PlannedTarget]:
    """Return the targets of a configuration, by name. `local` is this machine, unless the configuration defines it.

    Args:
        frozen: the prices with which a resumed run began, by the name of the target; None for a new run.

    Raises:
        ConfigurationError: the description of a target, or a file of prices, is wrong.
    """
    targets = {}
    prices = _Prices(configuration, frozen or {})
    for name, target in configuration.block(BLOCK, TargetsBlock).root.items():
        try:
            spec = {"backend": target.backend, **(target.model_extra or {})}
            description = loading.parse(protocols.BACKENDS, spec)
            if isinstance(description, MachineTarget):
                description.address(name)
            price, accelerator = prices.of(name, target, description), target.accelerator or _accelerator(description)
        except ValueError as error:
            path = f'{BLOCK}["{name}"]'
            raise ConfigurationError(f"{configuration.location(path)}: the target `{name}`: {error}") from None
        targets[name] = PlannedTarget(
            name,
            target.backend,
            description,
            tuple(target.labels),
            target.capacity,
            accelerator,
            price,
            not (isinstance(description, PricedTarget) and description.rents_per_attempt),
            CollectLimits(target.collect_bytes, target.collect_files),
        )
    local = loading.parse(protocols.BACKENDS, {"backend": "local"})
    return {"local": PlannedTarget("local", "local", local), **targets}


@dataclass(slots=True)
class _Prices:
    """Finds the prices of targets. The files of prices are read only if a target needs them."""

    configuration: Configuration
    frozen: Mapping[str, Price]
    _listed: PriceList | None = None

    def of(self, name: str, target: TargetBlock, description: protocols.Target) -> Price:
        """Return the price of a target."""
        if name in self.frozen:
            return self.frozen[name]
        if target.cost_per_hour is not None:
            path = paths.render((BLOCK, name, "cost_per_hour"))
            return Price(target.cost_per_hour, f"{self.configuration.location(path)}: `cost_per_hour`")
        if not isinstance(description, PricedTarget):
            return Price()
        if self._listed is None:
            self._listed = price_files.load()
        return self._listed.price(description.rentals(), currency=self.configuration.block(_RESULTS, Results).currency)


def _accelerator(description: protocols.Target) -> str | None:
    """Return the name of the accelerators that a target rents; None if it is unknown."""
    rentals = description.rentals() if isinstance(description, PricedTarget) else ()
    return rentals[0].label if rentals else None


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
