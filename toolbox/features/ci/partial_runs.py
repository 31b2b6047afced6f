"""Decides by effect whether the runs of a comment are full runs of a workflow, or leave out or change something.

The full run is what `/test PROJECT` alone starts: with the presets of the workflow, and with nothing that the comment,
the description of the pull request, a job or a cluster adds. Both runs are planned and compared, because a comment can
request the same in many ways. A difference whose effect is unknown makes a run partial, too.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from toolbox.config import paths
from toolbox.config.paths import Path
from toolbox.features.ci import comment_runs
from toolbox.features.ci.comment_runs import Settings
from toolbox.features.ci.refusals import Fault
from toolbox.features.ci.slash import CommentRequest
from toolbox.ground.model import yaml_text
from toolbox.ground.model.errors import describe
from toolbox.ground.model.text import first_of
from toolbox.matrix import plan
from toolbox.matrix.plan import Cell, Plan
from toolbox.orchestration import projects
from toolbox.orchestration import request as run_requests
from toolbox.orchestration.request import PreparedRun, RunRequest

_RETEST: Final = "/retest repeats only what did not pass"
_MAX_NAMES: Final = 3
# These fields of the matrix may differ, for example to add cells. The plans show their effect, cell by cell.
_SHOWN_BY_CELLS: Final = frozenset({"axes", "zip", "include", "exclude", "skip", "quarantine"})
# These fields of a cell do not decide whether it passes, or are compared in another way.
_APART: Final = frozenset({"skip", "quarantine", "note", "owner", "reuse"})


def differences(comment: CommentRequest, settings: Settings, faults: Iterable[Fault] = ()) -> tuple[str, ...]:
    """Return what makes the runs of a comment partial; nothing if each of them is at least the full run.

    Args:
        settings: those of the runs, with the project of the workflow.
        faults: the faults of the comment. A comment with faults is never a full run.
    """
    if comment.retest:
        return (_RETEST,)
    try:
        runs = [replace(run.request, position=1) for run in comment_runs.of(comment, settings, faults)]
        full = _full_run(settings)
        return tuple(dict.fromkeys(text for run in runs if run != full for text in _differences(full, run, settings)))
    except Exception as error:  # noqa: BLE001  # the code of a workspace may raise any error
        return (f"the runs cannot be compared with the full run: {describe(error)}",)


def _full_run(settings: Settings) -> RunRequest:
    return RunRequest(
        settings.project or "",
        tuple(settings.presets),
        override_files=settings.override_files,
        is_from_outside=True,
        trusted_overrides=settings.trusted_overrides,
        artifact_dir=settings.artifact_dir,
    )


def _differences(full: RunRequest, run: RunRequest, settings: Settings) -> Iterator[str]:
    """Yield what a run leaves out or changes."""
    all_phases = projects.phases(projects.find(full.project))
    if run.phases is not None and (missing := [phase for phase in all_phases if phase not in run.phases]):
        yield f"phases left out: {', '.join(missing)}"
    time = settings.time or dt.datetime.now(dt.UTC)
    today = time.astimezone(dt.UTC).date()  # the same in each job of the workflow run
    before, after = (run_requests.load(each, today=today, needs_secrets=False) for each in (full, run))
    are_planned = before.plan is not None and after.plan is not None
    fields = (_compared_fields(each, are_planned=are_planned) for each in (before, after))
    if changed := list(_changed(*fields, path=())):
        yield f"fields with other values: {_first(changed)}"
    if before.plan is not None and after.plan is not None:
        yield from _weaker_cells(before.plan, after.plan)


def _compared_fields(loaded: PreparedRun, *, are_planned: bool) -> dict[str, Any]:
    """Return the resolved configuration, without the fields of the matrix whose effect the plans show."""
    fields = dict(loaded.configuration.get(paths.ROOT))
    if are_planned:
        fields[plan.BLOCK] = {key: each for key, each in fields[plan.BLOCK].items() if key not in _SHOWN_BY_CELLS}
    return fields


def _changed(before: object, after: object, *, path: Path) -> Iterator[str]:
    """Yield the paths of the fields that differ. Secrets are equal if their references are equal."""
    if yaml_text.dump(before) == yaml_text.dump(after):
        return
    if not (isinstance(before, Mapping) and isinstance(after, Mapping)):
        yield paths.render(path)
        return
    for key in dict.fromkeys([*before, *after]):
        at = (*path, key if isinstance(key, str | int) else str(key))
        if key in before and key in after:
            yield from _changed(before[key], after[key], path=at)
        else:
            yield paths.render(at)


def _weaker_cells(before: Plan, after: Plan) -> Iterator[str]:
    """Yield which cells of a plan another plan leaves out, excuses, or judges in another way."""
    cells = {cell.id: cell for cell in after.cells}
    executed = [cell for cell in before.cells if not cell.skip]
    pairs = [(cell, cells[cell.id]) for cell in executed if cell.id in cells]
    names = {
        "left out": [cell.name for cell in executed if cell.id not in cells],
        "skipped": [cell.name for cell, other in pairs if other.skip],
        "put into quarantine": [cell.name for cell, other in pairs if other.quarantine and not cell.quarantine],
        "executed or judged in another way": [cell.name for cell, other in pairs if _judged(cell) != _judged(other)],
    }
    for what, cell_names in names.items():
        if cell_names:
            yield f"{len(cell_names)} of {len(executed)} cells {what}: {_first(cell_names)}"


def _judged(cell: Cell) -> dict[str, Any]:
    """Return what decides whether a cell passes, except for its quarantine."""
    fields = {key: value for key, value in cell.as_json().items() if key not in _APART}
    return {**fields, "retries": cell.retries, "text": yaml_text.dump(dict(cell.settings))}


def _first(names: Sequence[str]) -> str:
    return ", ".join(first_of(names, _MAX_NAMES))
