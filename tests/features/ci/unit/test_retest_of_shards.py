"""A retest of a run in shards repeats the cells of a lost shard."""

from pathlib import Path

from tests.fakes.shards import Shard
from tests.unit.records.shards.test_merged_run import change, merge
from toolbox.features.ci import earlier_runs
from toolbox.records.runs.layout import RunDirectory


def test_a_retest_repeats_the_cells_of_a_lost_shard(tmp_path: Path) -> None:
    run = merge(tmp_path, Shard(1), Shard(3))
    passed = {cell.identity for cell in run.cells}
    limits = dict.fromkeys(("phases", "cells", "jobs", "max_failures", "max_cost", "deadline"))
    flags = {**limits, "fail_fast": False, "in_steps": False}
    change(
        RunDirectory(run.directory).request, lambda content: content.update(flags, override_files=[], overrides_text="")
    )
    past = earlier_runs.of(run)
    assert past is not None
    assert past.cells is not None
    assert len(past.cells) == 2
    assert not passed & set(past.cells)
