"""Derives the cells of the project `inference` from its specifications: the axes, and what each cell needs.

The axes `model`, `config` and `test` advance together. Their values are only what identifies a cell: the name of the
model, the given fields of the config, and whether the server gets the cases or the load. So a cell keeps its history
when its cases or the description of its server change. The field `inference.cells` contains the rest, by the name of
the model, the name of the config, and the test.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from toolbox.config.configuration import Configuration
from toolbox.features.inference import case_files, load_steps, specifications, suites
from toolbox.features.inference import client as inference_client
from toolbox.features.inference.case_files import Case
from toolbox.features.inference.load_steps import Load
from toolbox.features.inference.specifications import Config, Framework, Frameworks, Specification, Specifications
from toolbox.ground import kit
from toolbox.ground.model import quantities
from toolbox.ground.model.errors import ConfigurationError, ConfigurationFaults
from toolbox.ground.model.quantities import AnySeconds
from toolbox.ground.model.text import counted

TESTS: Final = "tests"
FRAMEWORKS: Final = "frameworks"
BLOCK: Final = "inference"
IMAGE_TAG: Final = f"{BLOCK}.image_tag"
PROJECT: Final = "inference"
CLIENT: Final = Path(inference_client.__file__).parent
"""The package that sends the cases on a target."""
KIT: Final = Path(kit.__file__).parent
"""The package that `CLIENT` imports."""
CASES: Final = "cases"
LOAD: Final = "load"
_AXES: Final = ("model", "config", "test")
_WITHOUT_PODS: Final = ("local", "ssh", "tpu_vm", "jupyterhub")  # backends that ignore the field `pod` of a workload
_TIMEOUTS: Final[Mapping[str, float | None]] = {"run": 3600, "silence": None}  # the defaults of `matrix.timeouts`


class InferenceBlock(BaseModel):
    """The block `inference`.

    Args:
        image_tag: the tag that `{image_tag}` in the image of a framework stands for.
        concurrency: the number of requests that a worker sends at the same time.
        timeout: the time in seconds in which an answer must be complete.
        python: the Python on the targets that runs the worker.
        client: the folder of the worker, which is sent to the targets; derived from the place of Topgallant.
        kit: the folder of the modules that the worker imports; sent and derived in the same way.
        cells: derived from `tests`; null in the file.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    image_tag: str | None = Field(default=None, pattern=re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$"))
    concurrency: int = Field(default=1, ge=1, le=1000)
    timeout: AnySeconds = Field(default=120, gt=0, allow_inf_nan=False)
    python: str = Field(default="python3", min_length=1)
    client: str | None = None
    kit: str | None = None
    cells: dict[str, dict[str, Any]] | None = None


def derive(configuration: Configuration) -> dict[str, object]:
    """Return values for the configuration by path: axes, descriptions of cells, and metrics and checks of loads.

    Raises:
        ConfigurationError: the message names every impossible config or load, and every fault of a case file.
    """
    block = configuration.block(BLOCK, InferenceBlock)
    tests = configuration.block(TESTS, Specifications).root
    frameworks = configuration.block(FRAMEWORKS, Frameworks).root
    faults: list[str] = []
    cells: dict[str, dict[str, Any]] = {}
    axes: dict[str, list[Any]] = {name: [] for name in _AXES}
    for index, test in enumerate(tests):
        described = _Test(configuration, block, test, f"{TESTS}[{index}]", faults)
        for number, config in enumerate(test.configs):
            by_kind = described.cells(number, config, frameworks)
            if by_kind:
                cells.setdefault(test.model, {})[config.label] = by_kind
            for kind in by_kind:
                for name, value in zip(_AXES, (test.model, config.settings, kind), strict=True):
                    axes[name].append(value)
    if faults:
        raise ConfigurationFaults(faults)
    zipped = configuration.get("matrix.zip", default=None) or []
    return {
        **{f"matrix.axes.{name}": values for name, values in axes.items()},
        "matrix.zip": [*zipped, list(_AXES)],
        **_of_loads(configuration, {test.model: test.load for test in tests if test.load is not None}),
        f"{BLOCK}.cells": cells,
        **({f"{BLOCK}.client": str(CLIENT)} if block.client is not None else {}),
        **({f"{BLOCK}.kit": str(KIT)} if block.kit is not None else {}),
    }


class _Test:
    """Describes the cells of a specification.

    Args:
        path: the path of the specification in the configuration.
        faults: the list to which faults are added.
    """

    def __init__(
        self, configuration: Configuration, block: InferenceBlock, test: Specification, path: str, faults: list[str]
    ) -> None:
        self._configuration = configuration
        self._block = block
        self._test = test
        self._path = path
        self._faults = faults
        self._cases = self._read("cases", test.cases)
        self._load_cases = self._cases
        if test.load is not None and test.load.cases is not None:
            self._load_cases = self._read("load.cases", test.load.cases)

    def cells(self, number: int, config: Config, frameworks: Mapping[str, Framework]) -> dict[str, dict[str, Any]]:
        """Return the cells of a config, by the value of the axis `test`; empty if the config is impossible."""
        at = f"{self._path}.configs[{number}]"
        if found := list(specifications.faults(config, frameworks)):
            for field, fault in found:
                self._add_fault(f"{at}.{field}", fault)
            return {}
        framework = frameworks[config.deployment_framework]
        try:
            has_pods = _has_pods(self._configuration)
            pod = specifications.pod(framework, config, self._block.image_tag, is_needed=has_pods)
        except ValueError as error:
            self._add_fault(at, str(error))
            return {}
        settings = {
            "server": specifications.server(framework, config, self._test.model),
            "cases": "cases.json",
            "concurrency": self._block.concurrency,
            "timeout": self._block.timeout,
        }
        cells: dict[str, dict[str, Any]] = {}
        if self._test.cases is not None:
            sent, expectations = suites.describe(
                self._cases,
                protocols=framework.protocols,
                shards=config.num_shard,
                streams=self._test.streams,
                compare=self._test.compare,
            )
            cells[CASES] = {"settings": settings, "cases": sent, "expectations": expectations, "pod": pod}
        if (load := self._test.load) is not None:
            sent, expectations = suites.describe_load(
                self._load_cases, protocols=framework.protocols, shards=config.num_shard
            )
            if not sent["cases"] and self._load_cases:
                shown = suites.skip_reasons(expectations)
                self._add_fault(f"{self._path}.load", f"no case is left for the load on {config.label} ({shown})")
            for fault in _time_faults(self._configuration, load, self._test.model, config):
                self._add_fault(f"{self._path}.load.seconds", fault)
            cells[LOAD] = {
                "settings": {**settings, "load": load.settings},
                "cases": sent,
                "expectations": expectations,
                "pod": pod,
            }
        return cells

    def _read(self, field: str, names: Sequence[str] | None) -> list[Case]:
        cases: list[Case] = []
        for index, name in enumerate(names or ()):
            try:
                cases += case_files.load(self._configuration.root / Path(name).expanduser(), shown=name)
            except ConfigurationError as error:
                where = f"{self._path}.{field}[{index}]"
                location = self._configuration.location(where)
                self._faults += [f"{fault} (used by `{where}`, {location})" for fault in error.faults]
        return cases

    def _add_fault(self, path: str, fault: str) -> None:
        text = f"{self._configuration.location(path)}: `{path}`: {fault}"
        if text not in self._faults:
            self._faults.append(text)


def _of_loads(configuration: Configuration, loads: Mapping[str, Load]) -> dict[str, object]:
    """Return the metrics and the checks of the matrix with those of loads; empty without a load.

    A metric that the matrix has already stays as it is.
    """
    if not loads:
        return {}
    metrics, checks = load_steps.expectations(loads, {"test": LOAD})
    matrix = configuration.written("matrix")
    return {
        "matrix.metrics": {**metrics, **(matrix.get("metrics") or {})},
        "matrix.checks": [*(matrix.get("checks") or []), *checks],
    }


def _has_pods(configuration: Configuration) -> bool:
    """Tell whether a cell may run in a pod: on a target whose backend is not one of those without pods."""
    targets = configuration.get("targets", default=None)
    names = _chosen_targets(configuration)
    if any(name.startswith("@") for name in names):  # refers to the cell, so the target is not known yet
        return True
    return any(
        target.get("backend", "local") not in _WITHOUT_PODS
        for name, target in (targets.items() if isinstance(targets, Mapping) else ())
        if isinstance(target, Mapping) and names & {str(name), *map(str, _listed(target.get("labels")))}
    )


def _chosen_targets(configuration: Configuration) -> set[str]:
    """Return the names and labels of the targets that the matrix, its settings and its axis `target` name."""
    axis = configuration.get("matrix.axes.target", default=None)
    settings = configuration.get("matrix.settings", default=None)
    entries = [entry for entry in settings if isinstance(entry, Mapping)] if isinstance(settings, list) else []
    chosen = [
        configuration.get("matrix.target", default=None) or "local",
        *(entry.get("target") for entry in entries),
        list(axis.values()) if isinstance(axis, Mapping) else axis,
    ]
    return {str(name) for value in chosen for name in _listed(value) if name is not None}


def _time_faults(configuration: Configuration, load: Load, model: str, config: Config) -> Iterator[str]:
    """Yield a fault for each time limit, `run` or `silence`, that would end the cell of a load too early."""
    values = {"model": model, "config": config.label, "test": LOAD}
    for limit, seconds, what in (
        ("run", load.total, f"{counted(len(load.names), 'step')} of {load.seconds:g} s take {load.total:g} s"),
        ("silence", load.seconds, f"a step takes {load.seconds:g} s without output"),
    ):
        allowed = _time_limit(configuration, limit, values)
        if allowed is not None and seconds >= allowed:
            yield f"{what}, but `timeouts.{limit}` ends the cell after {allowed:g} s"


def _time_limit(configuration: Configuration, name: str, values: Mapping[str, str]) -> float | None:
    """Return a time limit of a cell; None if there is no limit.

    An entry of `matrix.settings` that names further axes may apply to the cell or not: the longer limit counts.
    """
    written = configuration.get(f"matrix.timeouts.{name}", default=None)
    limit = _seconds(_TIMEOUTS[name] if written is None else written)
    entries = configuration.get("matrix.settings", default=None)
    for entry in entries if isinstance(entries, list) else ():
        try:
            when, seconds = entry.get("when") or {}, _seconds((entry.get("timeouts") or {}).get(name))
            matches = all(values[axis] in _listed(value) for axis, value in when.items() if axis in values)
            is_certain = when.keys() <= values.keys()
        except (AttributeError, TypeError):  # the contract of the block reports it
            continue
        if matches and seconds is not None:
            limit = seconds if is_certain or limit is None else max(limit, seconds)
    return limit


def _listed(pattern: object) -> list[object]:
    items = pattern if isinstance(pattern, list) else [pattern]
    return [item.get("name") if isinstance(item, Mapping) else item for item in items]


def _seconds(value: object) -> float | None:
    if isinstance(value, str):
        with contextlib.suppress(ValueError):  # the contract of the block reports it
            return quantities.seconds(value)
    return float(value) if isinstance(value, int | float) else None
