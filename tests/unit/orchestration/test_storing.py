"""An orchestration reads the flaky cells from the store of earlier runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.fakes.history import Past, Tried, identity
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.orchestration import storing
from toolbox.records.results import recording
from toolbox.records.results.store import Store

from .conftest import Work

FAILED = Tried(Verdict.FAILED, Cause.PRODUCT)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a store in which `x=a` passed and failed at each of ten revisions, and `x=b` always failed."""
    file, begin = tmp_path / "store.db", datetime.now(UTC) - timedelta(days=20)
    with Store(str(file)) as opened:
        for number in range(20):
            cells = {"x=a": [FAILED if number % 2 else Tried()], "x=b": [FAILED]}
            started, revision = begin + timedelta(hours=number), f"{number // 2:040d}"
            recording.record(opened, Past(cells, "grid", started=started, revision=revision).write(tmp_path / "runs"))
    return file


def test_cells_that_pass_and_fail_at_the_same_revision_are_flaky(work: Work, store: Path) -> None:
    configuration = work(f"results: {{database: {store}}}\n").configuration
    assert storing.flaky_cells(configuration, "grid") == {identity("x=a")}
    assert storing.flaky_cells(configuration, "other") == set()


@pytest.mark.parametrize("block", ["record: false", "database: no/such/store.db"])
def test_without_a_store_no_cell_is_flaky(work: Work, block: str) -> None:
    configuration = work(f"results: {{{block}}}\n").configuration
    assert storing.flaky_cells(configuration, "grid") == set()
