"""Fixtures for the tests of the matrix."""

import datetime as dt
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fakes.bench import ALL, Bench
from toolbox.config.configuration import Configuration, Request
from toolbox.ground.model.bounds import Bound
from toolbox.matrix import plan, planner, targets
from toolbox.matrix.matrix_block import MatrixBlock
from toolbox.matrix.plan import Plan, Selection
from toolbox.matrix.targets import PlannedTarget

TODAY = dt.date(2026, 6, 15)


def matrix(axes: dict[str, Any], **fields: Any) -> MatrixBlock:
    """Return a matrix with the workload `true`: `matrix({"batch": [8, 16]}, exclude=[{"batch": 8}])`."""
    return MatrixBlock.model_validate({"axes": axes, "workload": {"command": "true"}, **fields})


Planned = Callable[..., Plan]


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Planned:
    """Return a function that plans a matrix: `planned({"axes": {"x": ["a"]}}, machines.target("fast"))`.

    The default workload is the single word `@cell.x`; `blocks` are the other blocks of the configuration.
    """
    monkeypatch.chdir(tmp_path)

    def call(
        block: Mapping[str, Any],
        *machines: PlannedTarget,
        selection: Selection = ALL,
        today: dt.date = TODAY,
        bounds: Mapping[tuple[str, str], Bound] | None = None,
        **blocks: Any,
    ) -> Plan:
        file = tmp_path / "config.yaml"
        given = {"workload": {"command": ["@cell.x"]}, **block}
        if machines:
            given.setdefault("target", [target.name for target in machines])
        file.write_text(yaml.safe_dump({**blocks, "matrix": given}, sort_keys=False))
        configuration = Configuration.load(Request(file, contracts=(plan.CONTRACTS,)))
        configuration.check()
        found = {target.name: target for target in machines} or targets.read(configuration)
        return planner.make(configuration, found, selection, root=tmp_path, today=today, bounds=bounds)

    return call


@pytest.fixture
def bench(tmp_path: Path, planned: Planned) -> Bench:
    """Return a run on fake machines."""
    return Bench(tmp_path / "run", planned)
