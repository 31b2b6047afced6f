"""Merges the runs of shards for `results merge`, and shows the merged runs as `project run` shows a run."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from toolbox import reports
from toolbox.ground.model.errors import UsageError
from toolbox.ground.model.verdicts import ExitCode, worst_exit_code
from toolbox.records.results import since_last_run
from toolbox.records.results.since_last_run import NotCompared, SinceLastRun
from toolbox.records.runs import layout, summary
from toolbox.records.runs.run_state import RunState
from toolbox.records.shards import merged_run, shard_run
from toolbox.records.shards.merged_run import MergedRun
from toolbox.records.shards.shard_run import ShardRun
from toolbox.reports.terminal import live_view, project_runs, run_table

log = logging.getLogger(__name__)

_GOOD: Final = frozenset({ExitCode.PASSED, ExitCode.NOTHING_RAN})
SUCCESS: Final = "success"


def merge(directories: Sequence[str], artifacts: Path, jobs: str, *, as_json: bool) -> int:
    """Merge the runs of shards, one merged run for each position in a comment, and return the worst exit code.

    Args:
        jobs: the result of the jobs that ran the shards.
        as_json: print the summaries as JSON on stdout, and the tables on stderr.

    Raises:
        UsageError: a directory is not that of the run of a shard, or the runs do not belong together.
        InfrastructureError: a file cannot be read or written.
    """
    found = [run for directory in directories for run in _runs(Path(directory))]
    groups = _groups([shard_run.read(run) for run in found])
    prepared = [merged_run.prepare(runs, artifacts) for runs in groups]
    if jobs != SUCCESS and all(run.journal.end.exit_code in _GOOD for run in prepared):
        fault = f"the jobs of the shards ended with `{jobs}`, although no run failed: look at the logs of the jobs"
        prepared = [merged_run.prepare(runs, artifacts, jobs_fault=fault) for runs in groups]
    states = [_write(run) for run in prepared]
    with live_view.view(sys.stderr if as_json else sys.stdout) as view:
        for state in states:
            run_table.show(state, view)
    if as_json:
        contents: list[dict[str, Any]] = [summary.as_json(state) for state in states]
        project_runs.print_json(contents[0] if len(contents) == 1 else contents)
    return worst_exit_code(run.journal.end.exit_code for run in prepared)


def _runs(directory: Path) -> list[Path]:
    """Return the directories of the runs in a directory, which may be that of a run."""
    found = layout.runs_below(directory)
    if not found:
        raise UsageError(f"{directory} is not the directory of a run, and contains no runs")
    return found


def _groups(runs: Sequence[ShardRun]) -> list[list[ShardRun]]:
    """Return the latest runs of the shards, by their position in a comment that requests several runs."""
    positions = sorted({run.request.position for run in runs})
    return [shard_run.current(run for run in runs if run.request.position == position) for position in positions]


def _comparison(parts: Sequence[SinceLastRun | NotCompared | None]) -> SinceLastRun | NotCompared | None:
    """Return the comparison of the merged run: of the shards that were compared, or else why they were not."""
    compared = [part for part in parts if isinstance(part, SinceLastRun)]
    if compared:
        return SinceLastRun.combined(compared)
    return next((part for part in parts if part is not None), None)


def _write(prepared: MergedRun) -> RunState:
    """Write a merged run and its reports, and return its state."""
    merged = merged_run.write(prepared)
    if merged.left_out:
        log.warning("%d files were left out: they are links or special files, or have unsafe names", merged.left_out)
    since_last_run.write(merged.directory, _comparison([since_last_run.find(run.directory) for run in merged.runs]))
    state = summary.refresh(merged.directory)
    reports.write_all(state)
    return state
