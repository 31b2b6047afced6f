"""Collects what the page shows of each step of a run: the plan of a cell, excerpts of logs, and links."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from toolbox.ground.model.events import StepKind
from toolbox.ground.model.text import truncate
from toolbox.ground.model.verdicts import Verdict
from toolbox.ground.system import filesystem
from toolbox.records.runs import cell_owners
from toolbox.records.runs.layout import RunDirectory, StepDirectory, attempt_name
from toolbox.records.runs.run_state import CellAttempt, RunState, StepState
from toolbox.reports import _links, _remarks, _web_page
from toolbox.reports._excerpts import Excerpt, Excerpts
from toolbox.reports._links import Link
from toolbox.reports._web_page import WAITING, Mark
from toolbox.reports.page.case_tables import CaseTable, CaseTables
from toolbox.reports.page.sections import CellPart, PageCell, PageLink, PageSections

MAX_CELLS: Final = 1500  # cells on a page
MAX_IN_FULL: Final = 250  # cells with all details, failed cells first


@dataclass(frozen=True, slots=True)
class StepCard(PageCell):
    """A step, or a cell that has not started, with everything that the page shows of it.

    Args:
        settings: the axis, the label and the value of each setting of a cell; the value is empty if the label shows it.
        remarks: remarks from the plan, such as the reason why a cell is skipped.
        command: the command as a line for a shell.
        owner: the person or team that looks after the cell; empty if the plan names none.
        is_brief: whether the page shows only a few lines of the step, because there are many cells.
        cases: the test cases; None if there are none, or if the page shows only a few lines of the step.
        parts: what sections add to the details; empty if the page shows only a few lines of the step.
    """

    settings: Sequence[tuple[str, str, str]] = ()
    remarks: Sequence[str] = ()
    bounds: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""
    excerpts: Sequence[Excerpt] = ()
    links: Sequence[Link] = ()
    attempts: Sequence[tuple[CellAttempt, Link | None]] = ()
    owner: str = ""
    is_brief: bool = False
    cases: CaseTable | None = None
    parts: Sequence[CellPart] = ()

    @property
    def link(self) -> PageLink | None:
        """The first link of the parts, which the matrix shows beside the cell."""
        return next((part.link for part in self.parts if part.link is not None), None)


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of a run for the page.

    Args:
        others: the steps that are not cells.
        left_out: the number of cells for which the page has no room.
        is_brief: whether some cells have only a few lines.
        is_cut: whether excerpts are omitted.
        case_rows: the test cases for the script, by the anchor of the cell.
    """

    cells: Sequence[StepCard]
    others: Sequence[StepCard]
    left_out: int
    is_brief: bool
    is_cut: bool
    case_rows: Mapping[str, Any] = field(default_factory=dict)


def collect(summary: RunState, sections: PageSections) -> Steps:
    """Return the steps of a run, including the planned cells that have not started."""
    plan, owners = _plan(summary.directory), cell_owners.of_run(summary.directory)
    cells = _in_plan_order(summary, plan)
    worst_first = [id(cell) for cell in sorted(cells, key=lambda cell: _rank(cell, summary))]
    kept, in_full = set(worst_first[:MAX_CELLS]), set(worst_first[:MAX_IN_FULL])
    excerpts = Excerpts(summary.directory, withheld=summary.secrets_left)
    others = [step for step in summary.steps.values() if step.kind is not StepKind.CELL]
    tables = CaseTables(summary.directory, summary.secrets_left)
    failed_first = sorted(
        (cell for cell in cells if cell.step and id(cell) in in_full), key=lambda cell: _rank(cell, summary)
    )
    case_tables = {id(cell): tables.of(cell, anchor_of(cell)) for cell in failed_first}
    parts = {id(cell): sections.of_cell(PageCell(anchor_of(cell), _mark(cell, summary), cell)) for cell in failed_first}
    other_cards = [
        replace(_in_full(step, summary, {}, excerpts), cases=tables.of(step, anchor_of(step))) for step in others
    ]
    cards = []
    for cell in cells:
        if id(cell) not in kept:
            continue
        planned = plan.get(cell.identity, {})
        if cell.step and id(cell) in in_full:
            card = _in_full(cell, summary, planned, excerpts)
            cards.append(replace(card, cases=case_tables[id(cell)], parts=parts[id(cell)]))
        else:
            cards.append(_in_brief(cell, summary, planned))
    cards = [replace(card, owner=owners.get(card.step.identity, "")) for card in cards]
    return Steps(
        cards, other_cards, len(cells) - len(cards), len(cells) > MAX_IN_FULL, excerpts.is_cut, tables.by_anchor
    )


def in_brief(summary: RunState) -> list[StepCard]:
    """Return all cells of a run with only a few details, in the order of the plan."""
    plan = _plan(summary.directory)
    return [_in_brief(cell, summary, plan.get(cell.identity, {})) for cell in _in_plan_order(summary, plan)]


def _plan(directory: Path) -> dict[str, Mapping[str, Any]]:
    """Return the planned cells, by id; empty if there is no valid plan."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return {str(cell["id"]): cell for cell in RunDirectory(directory).read_plan()["cells"] if cell["labels"]}
    return {}


def _in_plan_order(summary: RunState, plan: Mapping[str, Mapping[str, Any]]) -> list[StepState]:
    begun: dict[str, list[StepState]] = {}
    for step in summary.cells:
        begun.setdefault(step.identity, []).append(step)
    cells = [step for id_ in plan for step in begun.pop(id_, None) or [_not_started(id_, plan[id_])]]
    return cells + [step for steps in begun.values() for step in steps]


def _not_started(id_: str, cell: Mapping[str, Any]) -> StepState:
    settings, labels = cell.get("settings", {}), cell["labels"]
    return StepState("", str(cell.get("name", id_)), StepKind.CELL, key=id_, settings=settings, labels=labels)


def _mark(step: StepState, summary: RunState) -> Mark:
    if not step.step:
        return WAITING
    return _web_page.mark(
        step.verdict,
        summary.state,
        is_quarantined=_remarks.is_quarantined_failure(step),
        is_reused=bool(step.reused_from),
    )


def _rank(step: StepState, summary: RunState) -> tuple[bool, bool]:
    """Return a sort key: failures, then failures that do not count, then the other steps."""
    return not _mark(step, summary).is_bad, not _remarks.is_quarantined_failure(step)


def _bounds(cell: Mapping[str, Any]) -> Mapping[str, Any]:
    bounds = cell.get("bounds")
    return bounds if isinstance(bounds, Mapping) else {}


def _in_full(step: StepState, summary: RunState, cell: Mapping[str, Any], excerpts: Excerpts) -> StepCard:
    brief, root = _in_brief(step, summary, cell), summary.directory
    is_bad = brief.mark.is_bad or _remarks.is_quarantined_failure(step)
    return replace(
        brief,
        command=_command(step, cell, root),
        excerpts=excerpts.of(step, is_bad=is_bad) if _is_leaf(step) else (),
        links=_links.withhold(_files(step, root), summary.secrets_left),
        attempts=[(each, _links.link(root, step.step, attempt_name(each.attempt), name="")) for each in step.attempts],
        is_brief=False,
    )


def _in_brief(step: StepState, summary: RunState, cell: Mapping[str, Any]) -> StepCard:
    folder = _links.link(summary.directory, step.step, name=_links.WHOLE) if step.step else None
    return StepCard(
        anchor_of(step),
        _mark(step, summary),
        step,
        tuple(_settings(step)),
        tuple(_plan_remarks(step, cell)),
        _bounds(cell),
        links=[folder] if folder else [],
        is_brief=True,
    )


def _is_leaf(step: StepState) -> bool:
    return step.kind in {StepKind.CELL, StepKind.COMMAND} or bool(step.checks)


def anchor_of(step: StepState) -> str:
    """Return an id for the step that stays the same when the run continues. No text from outside can choose the id."""
    if step.kind is StepKind.CELL and (anchor := _links.cell_anchor(step.identity)):
        return anchor
    return f"s-{hashlib.sha256(filesystem.encode(f'{step.step} {step.key}')).hexdigest()[:12]}"


def _settings(step: StepState) -> Iterator[tuple[str, str, str]]:
    for axis, label in step.labels.items():
        value = step.settings.get(axis)
        text = json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, dict | list) else ""
        yield str(axis), str(label), truncate(text)


def _plan_remarks(step: StepState, cell: Mapping[str, Any]) -> Iterator[str]:
    if cell.get("skip"):
        yield f"skipped: {cell['skip']}"
    for key, words in (("xfail", "expected to fail"), ("quarantine", "in quarantine")):
        # The message of a cell that did not pass already contains this remark.
        if isinstance(excuse := cell.get(key), Mapping) and words not in step.message:
            yield f"{words} until {excuse.get('expires')} ({excuse.get('owner')}): {excuse.get('reason')}"
    if cell.get("note"):
        yield str(cell["note"])
    yield from _remarks.uncounted(step)
    if step.verdict is Verdict.PASSED and len(step.attempts) > 1:
        yield f"the cell passed at attempt {step.attempts[-1].attempt}"


def _command(step: StepState, cell: Mapping[str, Any], root: Path) -> str:
    """Return the planned command of a cell; for another step, the command line that reproduces it."""
    if isinstance(words := cell.get("command"), list):
        return str(words[-1]) if words[-2:-1] == ["-c"] else shlex.join(map(str, words))
    path = _links.inside(root, step.step, StepDirectory.record)
    if path is not None and step.kind is StepKind.COMMAND:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            return str(filesystem.read_json(path).get("detail", ""))
    return ""


def _files(step: StepState, root: Path) -> list[Link]:
    """Return the links to the files of a step; for a cell, to the files of its last attempt."""
    if not step.attempts:
        return _links.of_directory(root, step.step)
    files = _links.of_directory(root, step.step, attempt_name(step.attempts[-1].attempt))[:-1]
    failure = _links.link(root, step.step, StepDirectory.failure, name=StepDirectory.failure)
    whole = _links.link(root, step.step, name=_links.WHOLE)
    return [link for link in (failure, *files, whole) if link is not None]
