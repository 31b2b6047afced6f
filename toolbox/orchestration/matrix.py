"""Runs the cells of the project's matrix: `matrix.run()`, in the phase `test`."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from toolbox.ground.model.errors import ConfigurationError, StepError, UsageError
from toolbox.ground.model.events import DurationsExpected, FlakyCellsFailed, StepKind
from toolbox.ground.model.text import counted, tally
from toolbox.ground.model.verdicts import Cause, Verdict, worst
from toolbox.ground.system import filesystem
from toolbox.matrix.cell_run import CellResult
from toolbox.matrix.plan import BLOCK, Plan
from toolbox.matrix.scheduler import Scheduler
from toolbox.matrix.stop_rules import StopRules
from toolbox.orchestration import session, spending, storing
from toolbox.records.runs.layout import RunDirectory
from toolbox.records.runs.steps import Outcome

_EARLIER_RUNS: Final = 3


def run(*, check: bool = True) -> list[CellResult]:
    """Run every cell of the plan as a step of the current step, and return the results of the cells.

    Raises:
        ConfigurationError: the project has no matrix.
        StepError: `check` is set, and a cell did not pass. The error has the worst verdict of the cells.
    """
    current, step = session.current(), session.step()
    if current.plan is None:
        raise ConfigurationError(f"{current.configuration.source}: there is no block `{BLOCK}` to run")
    if current.matrix_has_run:
        raise UsageError("matrix.run: the matrix of this run has already been run")
    current.matrix_has_run = True
    if expected := _earlier_durations(step.recorder.root):
        step.recorder.record(DurationsExpected(step.identity, expected))
    budget = spending.budget(current.configuration, current.project, current.plan, current.options, step.recorder.past)
    scheduler = Scheduler(current.plan, current.options, step, current.variables, current.clusters, budget=budget)
    scheduler.run()
    by_id = {cell.id: scheduler.results[cell.id] for cell in current.plan.cells if cell.id in scheduler.results}
    results = list(by_id.values())
    if not results:
        step.add(Outcome(Verdict.SKIPPED, None, "there are no cells to run"))
    if over_budget := scheduler.rules.over_budget:
        step.add(Outcome(Verdict.ERROR, Cause.CAPACITY, over_budget))
    failed = {id_: result for id_, result in by_id.items() if result.counts and not result.outcome.verdict.is_pass}
    if check and over_budget and not failed:
        raise _incomplete(current.plan, results, scheduler.rules, step.directory)
    if check and failed:
        flaky = set[str]()
        if len(failed) > 1 or current.plan.shards:  # other shards may have failed cells, too
            flaky = storing.flaky_cells(current.configuration, current.project) & failed.keys()
        if flaky:
            step.recorder.record(FlakyCellsFailed(step.identity, tuple(sorted(flaky))))
        raise _failure(current.plan, results, _decisive(failed, flaky), scheduler.rules)
    return results


def machines() -> list[list[str] | None]:
    """Return the values of `hosts` for calls of a toolbox command that together reach all machines of the matrix.

    None stands for this machine. A list contains the addresses of all other machines. Clusters are left out.
    """
    plan = session.current().plan
    targets = plan.targets if plan is not None else {}
    addresses = [target.address for target in targets.values() if target.is_machine]
    remote = [address for address in addresses if address is not None]
    local: list[list[str] | None] = [None] if len(remote) < len(addresses) or not targets else []
    return [*local, remote] if remote else local


def _decisive(failed: Mapping[str, CellResult], flaky: Collection[str]) -> CellResult:
    """Return the result that the error names: one with the worst verdict, and of a cell that is not flaky if possible.

    Args:
        failed: the results that are not a pass, at least one, by the id of the cell.
        flaky: the ids of the flaky cells.
    """
    candidates = (failed[id_] for id_ in sorted(failed, key=lambda id_: id_ in flaky))
    decisive = worst(candidates, lambda result: result.outcome.verdict)
    assert decisive is not None
    return decisive


def _failure(plan: Plan, results: list[CellResult], decisive: CellResult, rules: StopRules) -> StepError:
    """Return the error of a matrix with failed cells. A matrix that was not completed is an error in any case."""
    verdict, cause = decisive.outcome.verdict, decisive.outcome.cause or Cause.INTERNAL
    if rules.over_budget and verdict is not Verdict.ERROR:
        verdict, cause = Verdict.ERROR, Cause.CAPACITY
    text = f"{_tally(plan, results, rules)}\n{decisive.name}: {decisive.outcome.message}"
    return StepError(text, verdict=verdict, cause=cause, directory=decisive.directory)


def _incomplete(plan: Plan, results: list[CellResult], rules: StopRules, directory: Path) -> StepError:
    """Return the error of a matrix in which some cells were not started because of their cost."""
    text = _tally(plan, results, rules)
    return StepError(text, verdict=Verdict.ERROR, cause=Cause.CAPACITY, directory=directory)


def _tally(plan: Plan, results: list[CellResult], rules: StopRules) -> str:
    """Return how many cells ended with each verdict, and why the matrix stopped."""
    counts = Counter[str](result.outcome.verdict for result in results)
    cells = counted(len(plan.cells), "cell")
    not_started = len(plan.cells) - len(results)
    reasons = [rules.outage, rules.stopped, rules.over_budget]
    return "\n".join([f"of {cells}: {tally(counts, not_started)}", *filter(None, reasons)])


def _earlier_durations(directory: Path) -> dict[str, float]:
    """Return the durations in seconds of cells that passed in earlier runs of the project, by the name of the cell."""
    durations: dict[str, float] = {}
    summaries = [
        RunDirectory(run).summary for run in sorted(directory.parent.iterdir(), reverse=True) if run != directory
    ]
    for file in [summary for summary in summaries if summary.is_file()][:_EARLIER_RUNS]:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            for step in filesystem.read_json(file)["steps"]:
                if step["kind"] == StepKind.CELL and step["verdict"] == Verdict.PASSED:
                    durations.setdefault(str(step["name"]), float(step["seconds"]))
    return durations
