"""List, plan and run projects; resume a run, and show its state and its logs.

Each command imports what it needs: the help and `project list` need neither matrices nor runs.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Final, Literal

from toolbox.ground.interface import options
from toolbox.ground.interface.options import ArtifactDir, Deadline, LaunchFlags, Shard, SummaryFormat
from toolbox.ground.interface.signature import Help
from toolbox.ground.model.errors import UsageError
from toolbox.ground.model.foreign_text import printable_json
from toolbox.ground.model.quantities import Cost, Count
from toolbox.ground.system import modules, places, processes

Format = options.Format[Literal["text", "json"]]
Name = Annotated[str, Help("the name of the project.")]
Cells = Annotated[
    str | None,
    Help(
        "patterns for the names or ids of cells, separated by spaces, such as 'model=small,* *batch=8'; all cells when "
        "left out."
    ),
]
MaxCost = Annotated[
    Cost | None,
    Help(
        "the highest cost of the run, in the currency of `results.currency`. A plan that is expected to cost more is "
        "refused, and cells that would exceed the limit are not started. When left out: the field `matrix.max_cost`."
    ),
]
# Inside the class, the name `list` is the command, so the built-in type needs an alias.
Names = list[str]
_MAX_RUNS: Final = 5


class Project:
    """List, plan and run projects; resume a run, and show its state and its logs."""

    def list(self, *, format: Format = "text") -> str:  # noqa: A002  # the words of the command line
        """List the projects with their purposes."""
        from toolbox.orchestration import projects

        available = [projects.find(name) for name in places.projects()]
        if format == "json":
            return json.dumps([{"name": item.name, "summary": item.summary} for item in available], indent=2)
        width = max((len(item.name) for item in available), default=0)
        return "\n".join(f"{item.name:<{width}}  {item.summary}" for item in available)

    def plan(
        self,
        name: Name,
        *,
        launch: LaunchFlags,
        cells: Cells = None,
        shard: Shard = None,
        max_cost: MaxCost = None,
        format: Format = "text",  # noqa: A002
    ) -> str | None:
        """
        Show the cells of the matrix of a project with their expected times and costs, and run nothing.

        The expected time of a cell is the mean of its latest 20 runs, of the last 90 days. A cell without earlier runs
        counts with its time limit. If a run would be refused because of its number of cells or its cost, the command
        shows the plan, then says so, and ends with exit code 2, as the run would.
        """
        with modules.gc_frozen_imports():
            from toolbox.config import overrides as overrides_text
            from toolbox.matrix.plan import Selection, parse_shard
            from toolbox.matrix.scheduler import Options
            from toolbox.orchestration import cell_limit, launch_presets, request, spending
            from toolbox.orchestration.request import RunRequest
            from toolbox.reports.terminal import live_view, plan_table

        files, values = overrides_text.parse(launch.overrides)
        selection = Selection(cells, parse_shard(shard))
        plan_request = RunRequest(name, launch.presets or (), files, values, selection=selection)
        loaded = request.load(launch_presets.applied(plan_request, launch.job, launch.cluster))
        if loaded.plan is None:
            raise UsageError(f"{loaded.configuration.source} has no matrix: there is nothing to plan")
        costs = spending.expected(loaded.configuration, name, loaded.plan)
        if format == "json":
            content = {**loaded.plan.as_json(), "expected": costs.as_json()}
            print(printable_json(json.dumps(content, indent=2, default=str, ensure_ascii=False)))
        else:
            with live_view.view(sys.stdout) as view:
                plan_table.show(loaded.plan, costs, view.console)
        cell_limit.verify(loaded.configuration, loaded.plan)
        if (limit := spending.limit(Options(max_cost=max_cost), loaded.plan)) is not None:
            spending.verify(costs, limit)
        return None

    def run(
        self,
        name: Name,
        *,
        launch: LaunchFlags,
        phases: Names | None = None,
        keep_open: bool = False,
        cells: Cells = None,
        shard: Shard = None,
        jobs: Count | None = None,
        fail_fast: bool = False,
        max_failures: Count | None = None,
        deadline: Deadline = None,
        max_cost: MaxCost = None,
        artifact_dir: ArtifactDir = None,
        format: SummaryFormat = "text",  # noqa: A002  # the flag of the command line
    ) -> int:
        """
        Run the phases of a project: pre_cleanup, prepare, test, post_cleanup. The verdict determines the exit code.

        Args:
            phases: the phases to run, as in prepare,test; all phases when left out.
            keep_open: run only these phases now, and let `project resume --phases` run the next ones. Nothing is
                cleaned up before the phase post_cleanup.
            jobs: how many cells run at the same time. When left out: `matrix.jobs`, else as many cells as there are
                targets.
            fail_fast: cancel the other cells as soon as one cell does not pass.
            max_failures: start no more cells after this number of failures, including errors and unexpected passes.
        """
        with modules.gc_frozen_imports():
            from toolbox.config import overrides as overrides_text
            from toolbox.matrix.plan import Selection, parse_shard
            from toolbox.matrix.scheduler import Options
            from toolbox.orchestration import launch_presets, project_run
            from toolbox.orchestration.request import RunRequest
            from toolbox.reports.terminal import project_runs

        if keep_open and phases is None:
            raise UsageError("--keep_open needs --phases: the phases to run now, for example --phases=prepare")
        files, values = overrides_text.parse(launch.overrides)
        run_request = RunRequest(
            name,
            launch.presets or (),
            files,
            values,
            phases=None if keep_open else phases,
            first_phases=phases if keep_open else None,
            in_steps=keep_open,
            artifact_dir=artifact_dir,
            selection=Selection(cells, parse_shard(shard)),
            options=Options(jobs, fail_fast, max_failures, max_cost),
            deadline=deadline,
        )
        run_request = launch_presets.applied(run_request, launch.job, launch.cluster)
        return project_runs.run_and_show(partial(project_run.execute, run_request), as_json=format == "json")

    def resume(
        self,
        run_dir: str,
        *,
        phases: Names | None = None,
        failed: bool = False,
        abandon: bool | str = False,
        jobs: Count | None = None,
        max_cost: MaxCost = None,
        damaged: Literal["refuse", "ignore"] = "refuse",
        format: SummaryFormat = "text",  # noqa: A002
    ) -> int:
        """
        Resume a run that has ended in any way, even by SIGKILL. Finished work is not repeated.

        Args:
            run_dir: the directory of the run, its name, or the beginning of its name.
            phases: the phases to run now, of a run that was started with --keep_open; all remaining phases when left
                out. The run ends with the phase post_cleanup.
            failed: also repeat the cells that did not pass.
            abandon: give up open attempts, even if their workloads still run, and run their cells again. A value is a
                pattern for the names or ids of the cells; without a value, all open attempts are given up.
            jobs: how many cells run at the same time; the number that `project run` used when left out.
            damaged: with `ignore`, resume even if lines of the journal cannot be read. The work that these lines
                recorded may be repeated.
        """
        with modules.gc_frozen_imports():
            from toolbox.orchestration import project_run
            from toolbox.reports.terminal import project_runs

        pattern = None if abandon in {False, "False"} else "*" if abandon in {True, "True"} else str(abandon)
        resume = partial(
            project_run.resume,
            _run_directory(run_dir),
            failed=failed,
            jobs=jobs,
            max_cost=max_cost,
            ignore_damage=damaged == "ignore",
            abandon=pattern,
            phases=phases,
        )
        return project_runs.run_and_show(resume, as_json=format == "json")

    def status(self, run_dir: str | None = None, *, format: Format = "text") -> str | None:  # noqa: A002
        """
        Show the progress of a run, or its result after it has ended. The command does not disturb a run in progress.

        Args:
            run_dir: the directory of the run, its name, or the beginning of its name; the newest run when left out.
        """
        from toolbox.records.runs import run_reader, summary
        from toolbox.records.runs.run_state import State
        from toolbox.reports.terminal import live_view, run_table

        run = run_reader.read(_run_directory(run_dir))
        if format == "json":
            return json.dumps(summary.as_json(run), indent=2, ensure_ascii=False)
        with live_view.view(sys.stdout) as view:
            run_table.show(run, view)
            if run.state is State.DEAD and (pids := processes.marked(run.directory)):
                text = f"processes of the run are still running: {' '.join(map(str, pids))} (end them with kill)"
                view.line(text, style="bold")
        return None

    def logs(self, run: str | None = None, cell: str | None = None, *, follow: bool = False) -> None:
        """
        Print the output of the cells of a run: of each cell, the stdout and the stderr of the latest attempt.

        Args:
            run: the directory of the run, its name, or the beginning of its name; the newest run when left out.
            cell: the name or the id of a cell, or a pattern such as 'model=small,*'; all cells when left out.
            follow: also print new lines as they are written, until the cell or the run has ended.
        """
        from toolbox.reports.terminal.cell_logs import CellLogs

        logs = CellLogs(_run_directory(run, "; --cell=... names a cell"), cell)
        if follow:
            logs.follow()
        else:
            logs.show()


def _run_directory(run: str | None, hint: str = "") -> Path:
    """
    Return the directory of a run.

    Args:
        run: a directory, or the beginning of the name of a run; None for the newest run.
        hint: the end of the error message.

    Raises:
        UsageError: no run, or more than one run, has a name with this beginning.
    """
    from toolbox.records.runs import layout

    if run is None:
        return layout.newest_run()
    if Path(run).is_dir():
        # Without `..`, because the name of the directory is the name of the run. Links stay, as in the run's journal.
        return Path(os.path.abspath(run))  # noqa: PTH100
    base = places.artifacts()
    runs = [directory for directory in layout.runs(base) if directory.name.startswith(run)]
    if len(runs) > 1:
        names = ", ".join([directory.name for directory in runs][:_MAX_RUNS])
        more = ", ..." * (len(runs) > _MAX_RUNS)
        raise UsageError(f"`{run}` matches {len(runs)} runs: {names}{more}; use a longer prefix")
    if not runs or not run:
        raise UsageError(f"`{run}` is not a directory, and {base} has no run of that name{hint}")
    return runs[0]
