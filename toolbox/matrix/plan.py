"""The plan of a matrix, as frozen data: its cells, and the file `plan.json`. `planner.py` makes the plan."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from toolbox.ground.model.bounds import Bound, Method
from toolbox.ground.model.errors import DamagedFile, UsageError, describe
from toolbox.ground.model.prices import Price
from toolbox.ground.model.text import abbreviated, truncate
from toolbox.ground.model.workloads import Workload
from toolbox.ground.system import filesystem
from toolbox.matrix.attempt_judgement import Expectations
from toolbox.matrix.axes import Combination
from toolbox.matrix.matrix_block import Quarantine, Retries, Xfail
from toolbox.matrix.reuse import Reuse
from toolbox.matrix.targets import PlannedTarget
from toolbox.records.runs.layout import RunDirectory

BLOCK: Final = "matrix"
_NUMBERS: Final = ("lower", "upper", "mean", "samples", "noise_samples", "confidence", "minimum_detectable_change")
CONTRACTS: Final = Path(__file__).parent / "contracts"


@dataclass(frozen=True, slots=True)
class Selection:
    """The cells to run.

    Args:
        cells: shell patterns for the names or ids of cells, separated by spaces; None selects all cells.
        shard: (1, 3) selects the first of three parts of the selected cells. The parts have no cell in common.
    """

    cells: str | None = None
    shard: tuple[int, int] | None = None


def parse_shard(text: str | None) -> tuple[int, int] | None:
    """Return the number of a shard and the number of all shards; None without a text.

    Raises:
        UsageError: the text is not a shard such as `1/3`.
    """
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text, re.ASCII)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise UsageError(f"--shard={truncate(text, 50)} is not a shard. Examples: 1/3, 2/3 and 3/3")
    return int(match[1]), int(match[2])


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination of a matrix, and everything that is planned for it.

    Args:
        targets: the names of the targets on which the cell may run.
        resources: the amount of each resource that the cell takes, by the label of the resource.
        skip: why the cell does not run; empty if it runs.
        xfail: why the cell is expected to fail; None if it is expected to pass.
        quarantine: why the verdict of the cell does not count; None if the verdict counts.
        bounds: the bounds from earlier runs, by metric.
        note: a remark for the user about expired entries of `xfail` and `quarantine`.
        fingerprint: a hash of the workload, the checks and the metrics.
        reuse: the keys for the reuse of results, and the result that the cell reuses.
        owner: the person or team that looks after the cell; empty if the configuration names none.
    """

    id: str
    name: str
    settings: Mapping[str, Any]
    labels: Mapping[str, str]
    targets: tuple[str, ...]
    resources: Mapping[str, int]
    retries: Retries
    skip: str
    xfail: Xfail | None
    quarantine: Quarantine | None
    note: str
    workload: Workload
    expectations: Expectations
    fingerprint: str
    bounds: Mapping[str, Bound] = field(default_factory=dict)
    reuse: Reuse = field(default_factory=Reuse)
    owner: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the cell as it is written to `plan.json`."""
        return {
            "id": self.id,
            "name": self.name,
            "settings": self.settings,
            "labels": dict(self.labels),
            "targets": list(self.targets),
            "resources": dict(self.resources),
            "timeouts": asdict(self.workload.timeouts),
            "skip": self.skip or None,
            "xfail": self.xfail.model_dump(mode="json", exclude={"when"}, exclude_none=True) if self.xfail else None,
            "quarantine": self.quarantine.model_dump(mode="json", exclude={"when"}) if self.quarantine else None,
            "note": self.note,
            "command": list(self.workload.command),
            "fingerprint": self.fingerprint,
            "bounds": {metric: _bound_json(bound) for metric, bound in self.bounds.items()},
            "owner": self.owner or None,
            **({"reuse": self.reuse.as_json()} if self.reuse.keys else {}),
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """The selected cells, in the order of the matrix.

    Args:
        targets: the targets on which the selected cells may run, by name.
        pools: how much of each resource the run may take at once, by the label of the resource.
        deadline: the time limit of the whole run, in seconds.
        max_cost: the highest cost of the whole run; None for no limit.
        max_cells: the largest number of cells that the run may execute; None for no limit.
        notes: remarks on parts of the matrix that have no effect.
        combinations: all combinations of the matrix, including those that were not selected.
        shards: the combinations of all shards with the number of their shard, in the order of the matrix; empty if the
            plan is not that of a shard.
        files: the digests of the files that are sent with the workloads, by path relative to the workspace.
    """

    cells: tuple[Cell, ...]
    targets: Mapping[str, PlannedTarget]
    jobs: int | None
    pools: Mapping[str, int]
    deadline: float | None
    notes: Sequence[str] = ()
    combinations: Sequence[Combination] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    max_cost: float | None = None
    max_cells: int | None = None
    shards: Sequence[tuple[Combination, int]] = ()

    @property
    def to_execute(self) -> Sequence[Cell]:
        """The cells that the run executes: those that are neither skipped nor reuse the result of an earlier run."""
        return [cell for cell in self.cells if not cell.skip and not cell.reuse.run]

    def workloads(self) -> dict[str, list[Workload]]:
        """Return the workloads that may run on each target."""
        by_target: dict[str, list[Workload]] = {}
        for cell in self.to_execute:
            for target in cell.targets:
                by_target.setdefault(target, []).append(cell.workload)
        return by_target

    def as_json(self) -> dict[str, Any]:
        """Return the plan as it is written to `plan.json`."""
        return {
            "total": len(self.combinations),
            "notes": list(self.notes),
            "targets": {name: target.as_json() for name, target in self.targets.items()},
            "files": dict(self.files),
            **({"shards": [_shard_json(*item) for item in self.shards]} if self.shards else {}),
            "cells": [cell.as_json() for cell in self.cells],
        }

    def write(self, directory: Path) -> None:
        """Write the plan to `plan.json` of a run directory."""
        text = json.dumps(self.as_json(), indent=1, default=str, ensure_ascii=False)
        filesystem.write_text(RunDirectory(directory).plan, f"{text}\n", durable=True)


def frozen_bounds(directory: Path) -> dict[tuple[str, str], Bound]:
    """Return the bounds that `plan.json` of a run contains, by cell id and metric.

    Raises:
        DamagedFile: `plan.json` cannot be read.
    """
    file = RunDirectory(directory).plan
    try:
        cells = filesystem.read_json(file)["cells"] if file.exists() else []
        return {(cell["id"], metric): _bound(bound) for cell in cells for metric, bound in cell["bounds"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedFile(file, describe(error)) from None


def frozen_prices(directory: Path) -> dict[str, Price]:
    """Return the prices that `plan.json` of a run contains, by the name of the target.

    Raises:
        DamagedFile: `plan.json` cannot be read.
    """
    file = RunDirectory(directory).plan
    try:
        targets = filesystem.read_json(file)["targets"] if file.exists() else {}
        return {name: Price(_number(target["cost_per_hour"]), str(target["price"])) for name, target in targets.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedFile(file, describe(error)) from None


def _bound(content: Mapping[str, Any]) -> Bound:
    for name in _NUMBERS:
        _number(content.get(name))
    return Bound(**{**content, "method": Method(content["method"])})


def _number(value: Any) -> float | None:
    """Return a number of `plan.json`, which the code under test may have changed."""
    if not (value is None or (isinstance(value, int | float) and math.isfinite(value))):
        raise ValueError(f"{abbreviated(value)} is not a number")
    return value


def _shard_json(combination: Combination, shard: int) -> dict[str, Any]:
    """Return a cell of any shard. `results merge` names the cells of shards that have no run."""
    return {"id": combination.id, "name": combination.name, "shard": shard}


def _bound_json(bound: Bound) -> dict[str, Any]:
    return {
        name: getattr(bound, name) for name in ("lower", "upper", "mean", "samples", "method", "unit", "confidence")
    }
