"""Derives the matrix of the project `notebooks`: each combination of a runtime and a machine becomes a cell.

A combination that is impossible is left out with the reason. All faults of the blocks are reported with their lines,
before anything starts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from toolbox.config import paths
from toolbox.config.configuration import Configuration
from toolbox.features.notebooks import combination_settings, notebook_metrics, promises, runtime_files
from toolbox.features.notebooks.combination_settings import HUB, DescribedRuntime
from toolbox.features.notebooks.machines import Machine, Machines
from toolbox.features.notebooks.notebooks_block import NotebooksBlock
from toolbox.features.notebooks.runtime_files import NotebookFile
from toolbox.features.notebooks.runtimes import Runtime, Runtimes
from toolbox.ground.model.errors import ConfigurationFaults
from toolbox.ground.model.nearest import did_you_mean
from toolbox.ground.model.text import first_of, truncate

RUNTIMES: Final = "runtimes"
MACHINES: Final = "machines"
BLOCK: Final = "notebooks"
_MAX_NAMED: Final = 4  # notebooks with the same name
_WITHOUT_CONTAINERS: Final = ("local", "ssh", "tpu_vm")


def derive(configuration: Configuration) -> dict[str, object]:
    """Return values of the configuration by path: the axes, the combinations that are left out, and the settings of
    each combination.

    Raises:
        ConfigurationError: the message names every fault of the blocks `runtimes`, `machines` and `notebooks`.
    """
    found = _Blocks(
        configuration,
        configuration.block(BLOCK, NotebooksBlock),
        configuration.block(RUNTIMES, Runtimes).root,
        configuration.block(MACHINES, Machines).root,
    )
    runtimes, metrics = _checked(found)
    matrix = configuration.written("matrix")
    return {
        "matrix.axes.runtime": list(runtimes),
        "matrix.axes.machine": list(found.machines),
        "matrix.skip": [*(matrix.get("skip") or []), *found.left_out()],
        "matrix.metrics": {**metrics, **(matrix.get("metrics") or {})},
        "matrix.owners": [*found.owners(), *(matrix.get("owners") or [])],
        "matrix.settings": [*found.settings(runtimes), *(matrix.get("settings") or [])],
        f"{BLOCK}.cells": {
            name: {
                machine_name: combination_settings.cell(found.block, described, machine, found.backends(machine))
                for machine_name, machine in found.machines.items()
            }
            for name, described in runtimes.items()
        },
    }


def _checked(found: _Blocks) -> tuple[dict[str, DescribedRuntime], dict[str, dict[str, Any]]]:
    """Return the runtimes with their files, and the metrics of their notebooks. Raise ConfigurationFaults."""
    faults = [*found.machine_faults(), *found.promise_faults()]
    runtimes: dict[str, DescribedRuntime] = {}
    for name, runtime in found.runtimes.items():
        runtimes[name], wrong = found.described(name, runtime)
        faults += wrong
    if faults := [*faults, *found.time_faults(runtimes)]:
        raise ConfigurationFaults(faults)
    return runtimes, found.metrics(runtimes)


@dataclass(frozen=True)
class _Blocks:
    """The blocks of the configuration from which the matrix is derived."""

    configuration: Configuration
    block: NotebooksBlock
    runtimes: Mapping[str, Runtime]
    machines: Mapping[str, Machine]

    def described(self, name: str, runtime: Runtime) -> tuple[DescribedRuntime, list[str]]:
        """Return a runtime with its files, and all faults of the runtime."""
        faults: list[str] = []
        files: list[NotebookFile] = []
        for index, entry in enumerate(runtime.notebooks):
            try:
                found = runtime_files.notebooks(self.configuration.root, entry)
            except ValueError as error:
                faults.append(self._fault((RUNTIMES, name, "notebooks", index), str(error)))
                continue
            files += found
            faults += self._parameter_faults((RUNTIMES, name, "notebooks", index, "parameters"), found)
            try:
                notebook_metrics.verify(file.measured for file in found if entry.manual is None)
            except ValueError as error:
                faults.append(self._fault((RUNTIMES, name, "notebooks", index, "cell_metrics"), str(error)))
        if repeated := runtime_files.repeated_name(files):
            same = ", ".join(first_of([self._shown(file) for file in repeated], _MAX_NAMED))
            text = f"several notebooks have the name {repeated[0].name}: {same}: give them a `name` of their own"
            faults.append(self._fault((RUNTIMES, name, "notebooks"), text))
        checks: Mapping[str, Path] = {}
        try:
            checks = runtime_files.checks(self.configuration.root, self.block.checks)
        except ValueError as error:
            faults.append(self._fault((BLOCK, "checks"), str(error)))
        faults += self._unknown_checks((RUNTIMES, name), runtime.without_checks, checks)
        lines: list[str] | None = None
        if runtime.requirements is not None:
            try:
                lines = runtime_files.requirements(self.configuration.root, runtime.requirements)
            except ValueError as error:
                faults.append(self._fault((RUNTIMES, name, "requirements"), str(error)))
        return DescribedRuntime(name, runtime, lines, files, checks), faults

    def _parameter_faults(self, at: tuple[str | int, ...], files: list[NotebookFile]) -> Iterator[str]:
        """Yield a fault for each parameter of an entry that has no effect on one of its notebooks."""
        for file in files:
            for fault in runtime_files.parameter_faults(file):
                path = (*at, fault.parameter) if fault.parameter else at
                yield self._fault(path, f"{self._shown(file)} {fault.reason}")

    def machine_faults(self) -> Iterator[str]:
        """Yield a fault for each unknown name in the block `machines`."""
        try:
            checks = runtime_files.checks(self.configuration.root, self.block.checks)
        except ValueError:  # a fault of the block `notebooks`
            checks = {}
        targets = self._targets()
        known = {label for name, (_, labels) in targets.items() for label in (name, *labels)}
        for name, machine in self.machines.items():
            for index, runtime in enumerate(machine.runtimes or ()):
                if runtime not in self.runtimes:
                    hint = did_you_mean(runtime, self.runtimes, label="runtimes")
                    yield self._fault((MACHINES, name, RUNTIMES, index), f"no runtime `{runtime}`: {hint}")
            for target in machine.targets:
                if target not in known:
                    hint = did_you_mean(target, known, label="targets and labels")
                    yield self._fault((MACHINES, name, "target"), f"no target `{target}`: {hint}")
            kinds = self.backends(machine)
            if HUB in kinds and len(kinds) > 1:
                yield self._fault(
                    (MACHINES, name, "target"),
                    "only some of the targets have the backend jupyterhub",
                )
            if checks:
                yield from self._unknown_checks((MACHINES, name), machine.without_checks, checks)

    def promise_faults(self) -> Iterator[str]:
        """Yield a fault for each promise that no check reads."""
        checks = dict(runtime_files.checks(self.configuration.root, None))
        with suppress(ValueError):  # a fault of the block `notebooks`
            checks |= runtime_files.checks(self.configuration.root, self.block.checks)
        blocks: dict[tuple[str, str], Mapping[str, Any]] = {
            **{(RUNTIMES, name): runtime.promises for name, runtime in self.runtimes.items()},
            **{(MACHINES, name): machine.promises for name, machine in self.machines.items()},
        }
        for at, promised in blocks.items():
            for name, text in promises.unread(promised, checks.values()):
                yield self._fault((*at, "promises", name), text)

    def time_faults(self, runtimes: Mapping[str, DescribedRuntime]) -> Iterator[str]:
        """Yield a fault for each time limit of a machine that would end the tests of a runtime too early."""
        for name, machine in self.machines.items():
            if (limit := machine.timeouts.run) is None:
                continue
            for described in runtimes.values():
                seconds = described.seconds(self.block, uses_server=HUB in self.backends(machine))
                if seconds > limit and not self._reason(described.runtime, described.name, machine, name):
                    text = (
                        f"ends a cell after {limit:g} s, but the environment, the checks and the notebooks of "
                        f"{described.name} may take {seconds:g} s within their time limits"
                    )
                    yield self._fault((MACHINES, name, "timeouts", "run"), text)

    def left_out(self) -> list[dict[str, Any]]:
        """Return the combinations that are impossible, as entries of `matrix.skip`."""
        return [
            {"when": {"runtime": name, "machine": machine_name}, "reason": reason}
            for name, runtime in self.runtimes.items()
            for machine_name, machine in self.machines.items()
            if (reason := self._reason(runtime, name, machine, machine_name))
        ]

    def owners(self) -> list[dict[str, Any]]:
        """Return the owners of the runtimes, as entries of `matrix.owners`."""
        return [
            {"when": {"runtime": name}, "owner": runtime.owner}
            for name, runtime in self.runtimes.items()
            if runtime.owner is not None
        ]

    def settings(self, runtimes: Mapping[str, DescribedRuntime]) -> list[dict[str, Any]]:
        """Return the targets, resources and time limits of the combinations, as entries of `matrix.settings`."""
        limited = self._limited_resources()
        entries: list[dict[str, Any]] = []
        on_hub = [name for name, machine in self.machines.items() if HUB in self.backends(machine)]
        for name, described in runtimes.items():
            run = described.seconds(self.block, uses_server=False)
            entries.append({"when": {"runtime": name}, "timeouts": {"run": run}})
            if on_hub:
                run = described.seconds(self.block, uses_server=True)
                entries.append({"when": {"runtime": name, "machine": on_hub}, "timeouts": {"run": run}})
        for name, machine in self.machines.items():
            takes = {"cpu": machine.cpus, "gpu": machine.gpus, "memory_gb": math.ceil(machine.memory_gb or 0)}
            resources = {label: count for label, count in takes.items() if count and label in limited}
            timeouts = machine.timeouts.model_dump(exclude_none=True)
            entries.append(
                {
                    "when": {"machine": name},
                    "target": machine.target,
                    **({"resources": resources} if resources else {}),
                    **({"timeouts": timeouts} if timeouts else {}),
                }
            )
        return entries

    def metrics(self, runtimes: Mapping[str, DescribedRuntime]) -> dict[str, dict[str, Any]]:
        """Return the metrics of all notebooks, as `matrix.metrics`."""
        return notebook_metrics.metrics(
            {
                name: [file.measured for file in described.notebooks if file.entry.manual is None]
                for name, described in runtimes.items()
            }
        )

    def _reason(self, runtime: Runtime, runtime_name: str, machine: Machine, machine_name: str) -> str:
        """Return why a combination is impossible; empty if it is possible.

        The plan shows combinations with the same reason in one line.
        """
        kinds = self.backends(machine)
        if machine.runtimes is not None and runtime_name not in machine.runtimes:
            return f"the machine {machine_name} is only for other runtimes"
        if runtime.needs_gpu and not machine.gpus:
            return f"{runtime_name} promises a GPU, and the machine has none"
        if runtime.image is not None and (without := sorted(kinds & set(_WITHOUT_CONTAINERS))):
            return f"{runtime_name} is an image, and targets with the backend {without[0]} have no containers"
        if runtime.requirements is not None and HUB in kinds:
            return f"{runtime_name} needs an environment, which a hub does not make: use an image or a kernel"
        return ""

    def _targets(self) -> dict[str, tuple[str, list[str]]]:
        """Return the backend and the labels of each target. The contract of the block reports faults."""
        written = self.configuration.get("targets", default=None)
        targets: dict[str, tuple[str, list[str]]] = {"local": ("local", [])}
        for name, block in written.items() if isinstance(written, Mapping) else ():
            if isinstance(block, Mapping):
                labels = block.get("labels")
                targets[str(name)] = (str(block.get("backend") or "local"), labels if isinstance(labels, list) else [])
        return targets

    def backends(self, machine: Machine) -> set[str]:
        """Return the names of the backends of a machine's targets."""
        chosen = set(machine.targets)
        return {backend for name, (backend, labels) in self._targets().items() if chosen & {name, *labels}}

    def _limited_resources(self) -> set[str]:
        """Return the labels of the resources that a target or a pool limits."""
        limited: set[str] = set()
        written = self.configuration.get("targets", default=None)
        blocks = list(written.values()) if isinstance(written, Mapping) else []
        limits = [block.get("capacity") for block in blocks if isinstance(block, Mapping)]
        for limit in [*limits, self.configuration.get("matrix.pools", default=None)]:
            limited |= set(limit) if isinstance(limit, Mapping) else set()
        return limited

    def _unknown_checks(
        self, at: tuple[str, str], reasons: Mapping[str, str], checks: Mapping[str, Path]
    ) -> Iterator[str]:
        known = {path.stem for path in checks.values()}
        for name in reasons:
            if name not in known:
                hint = did_you_mean(name, known, label="checks")
                yield self._fault((*at, "without_checks", name), f"no check `{name}`: {hint}")

    def _shown(self, file: NotebookFile) -> str:
        """Return the path of a notebook for a message, relative to the directory that contains `config/`."""
        root = self.configuration.root
        return truncate(str(file.path.relative_to(root) if file.path.is_relative_to(root) else file.path))

    def _fault(self, at: tuple[str | int, ...], text: str) -> str:
        path = paths.render(at)
        return f"{self.configuration.location(path)}: `{path}`: {text}"
