"""Renders a run as Markdown of a limited length: for the summary of a step of a workflow, and for a comment.

Text from outside is only in `<code>` and `<pre>`, where a forge makes no mentions, references, links or emoji. The page
consists of blocks of HTML without empty lines, in which Markdown has no meaning. If there is no room for all blocks and
rows, whole blocks and rows are omitted: first the rows of cells that passed, then failures from the end of the list.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import quote

from toolbox.ground.model.events import MetricMeasured, StepKind
from toolbox.ground.model.evidence import Metric
from toolbox.ground.model.text import duration, tally
from toolbox.ground.model.verdicts import Verdict
from toolbox.records.results import run_cost
from toolbox.records.runs.run_state import RunState, State, StepState
from toolbox.reports import _remarks
from toolbox.reports._excerpts import Excerpts
from toolbox.reports.forge import baseline_section
from toolbox.reports.forge.markup import code, preformatted, size

STEP_SUMMARY_BYTES: Final = 1 << 20  # GitHub does not show a longer summary of a step
COMMENT_CHARACTERS: Final = 1 << 16  # GitHub refuses a longer comment
FEWEST_BYTES: Final = 1 << 13  # room for the blocks that are never omitted
_MAX_REMARKS: Final = 30
_MAX_METRICS: Final = 6
_MAX_ROWS: Final = 30  # rows of a table that is not folded
_LONGEST_NAME: Final = 80
_LONGEST_FINDING: Final = 500
_URL = re.compile(r"https?://[^\s<>\"'`\\\x00-\x20\x7f]+")


def step_summary(summary: RunState, *, artifacts_url: str = "") -> str:
    """Return the content of the file that `$GITHUB_STEP_SUMMARY` names."""
    return render(summary, limit=STEP_SUMMARY_BYTES, artifacts_url=artifacts_url)


def comment(summary: RunState, *, artifacts_url: str = "") -> str:
    """Return the text of a comment on an issue or a pull request."""
    return render(summary, limit=COMMENT_CHARACTERS, artifacts_url=artifacts_url)


def render(summary: RunState, *, limit: int, artifacts_url: str = "") -> str:
    """Return a run as Markdown.

    Args:
        limit: the maximum length, in bytes of UTF-8.
        artifacts_url: the address of the run directory, for links; if empty, the page names paths instead.

    Raises:
        ValueError: the limit is below `FEWEST_BYTES`, or the address is not an HTTP URL.
    """
    if limit < FEWEST_BYTES:
        raise ValueError(f"limit must be at least {FEWEST_BYTES} bytes, not {limit}")
    if artifacts_url and not _URL.fullmatch(artifacts_url):
        raise ValueError(f"artifacts_url must be an address such as https://example.org/run, not {artifacts_url!r}")
    page = _Page(limit, artifacts_url.rstrip("/"))
    page.add(_head(summary))
    page.add(preformatted(summary.damage_warning.splitlines()))
    page.add(_attribution(summary))
    page.add(baseline_section.render(summary.directory, page.room // 4))
    rows = list(page.rows(summary))
    # The failures and remarks leave at least a quarter of the room to the table of the cells.
    reserved = min(page.room // 4, sum(map(size, rows)))
    page.add_failures(summary, reserved)
    page.add_remarks(summary, reserved)
    page.add_cells(rows, summary)
    return page.text()


class _Page:
    """The blocks of a page.

    Args:
        room: how many bytes may still be added.
    """

    def __init__(self, room: int, url: str) -> None:
        self.room = room
        self._url = url
        self._blocks: list[str] = []

    def text(self) -> str:
        """Return the page."""
        return "\n".join(self._blocks)

    def add(self, block: str, reserved: int = 0) -> bool:
        """Add a block and an empty line, unless the block is empty or too long. Return whether the block was added.

        Args:
            reserved: how many bytes must remain.
        """
        fits = bool(block) and size(block) + 1 <= self.room - reserved
        if fits:
            self._blocks.append(f"{block}\n")
            self.room -= size(block) + 2
        return fits

    def add_failures(self, summary: RunState, reserved: int) -> None:
        """Add the failures. When there is no room for excerpts of logs, further failures have one line each."""
        excerpts = Excerpts(summary.directory, characters=self.room, withheld=summary.secrets_left)
        failures = summary.failures
        for index, step in enumerate(failures):
            left = f"<p>and {len(failures) - index} more steps that did not pass</p>"
            room = reserved + (size(left) + 2 if index + 1 < len(failures) else 0)
            if not (self.add(self._failure(step, excerpts), room) or self.add(self._brief(step), room)):
                self.add(left, reserved)
                break
        if summary.cancelled and failures and failures[0].verdict is not Verdict.CANCELLED:
            self.add(f"<p>{summary.cancelled} other steps were cancelled</p>", reserved)

    def add_remarks(self, summary: RunState, reserved: int) -> None:
        """Add the remarks on steps that did not fail the run, as long as there is room."""
        remarks = _remarks.of(summary)
        for index, step in enumerate(remarks):
            left = f"<p>and {len(remarks) - index} more remarks</p>"
            room = reserved + (size(left) + 2 if index + 1 < len(remarks) else 0)
            title = f"<p>{_standing(step, step.cause)}: {self._place(step, step.name)}</p>"
            lines = preformatted(_remarks.text(step).splitlines(), longest=_LONGEST_FINDING)
            block = "\n".join(["<h3>Remarks</h3>"] * (index == 0) + [title] + [lines] * bool(lines))
            if index == _MAX_REMARKS or not self.add(block, room):
                self.add(left, reserved)
                break

    def rows(self, summary: RunState) -> Iterator[str]:
        """Yield a row for each cell, failed cells first; in a run without a matrix, a row for each command."""
        names = _metrics(summary)[:_MAX_METRICS]
        has_tests = _has_tests(summary)
        for step in sorted(_cases(summary), key=lambda step: step.verdict is not None and step.verdict.is_pass):
            uncounted = "" if step.counts else f", {_why_uncounted(step)}"
            verdict = _words(step.verdict, None, summary.state) + uncounted
            attempt = step.attempts[-1] if step.attempts else None
            metrics = {metric.metric: metric for metric in step.metrics}
            columns = [
                self._place(step, step.name),
                verdict,
                html.escape(step.cause or ""),
                code(attempt.target) if attempt else "",
                str(len(step.attempts) or ""),
                duration(step.seconds),
                *([html.escape(step.tests)] if has_tests else []),
                *(_metric(metrics.get(name)) for name in names),
            ]
            yield f"<tr>{''.join(f'<td>{column}</td>' for column in columns)}</tr>"

    def add_cells(self, rows: Sequence[str], summary: RunState) -> None:
        """Add the table of the cells, with as many rows as there is room for."""
        metrics = _metrics(summary)
        tests = ["tests"] if _has_tests(summary) else []
        names = ["verdict", "cause", "target", "attempts", "time", *tests, *map(code, metrics[:_MAX_METRICS])]
        what = "cell" if summary.cells else "command"
        head = f"<tr>{''.join(f'<th>{name}</th>' for name in (what, *names))}</tr>"
        begin, end = ["<table>", head], ["</table>"]
        if len(rows) > _MAX_ROWS:
            begin, end = [f"<details><summary>{len(rows)} {what}s</summary>", *begin], [*end, "</details>"]
        left = f'<tr><td colspan="{1 + len(names)}">and {len(rows)} more</td></tr>'
        room = self.room - sum(size(line) + 1 for line in (*begin, *end, left)) - 1
        count = 0
        while count < len(rows) and (room := room - size(rows[count]) - 1) >= 0:
            count += 1
        more = [left.replace(f"and {len(rows)} more", f"and {len(rows) - count} more")] if count < len(rows) else []
        if rows:
            self.add("\n".join([*begin, *rows[:count], *more, *end]))
        if (omitted := len(metrics) - _MAX_METRICS) > 0:
            self.add(f"<p>and {omitted} more metrics</p>")

    def _failure(self, step: StepState, excerpts: Excerpts) -> str:
        """Return the folded block of a failure, with its message and excerpts of its logs."""
        parts = [f"<details><summary>{_title(step)}</summary>", preformatted(step.message.splitlines())]
        for excerpt in excerpts.of(step, is_bad=True):
            lines = list(map(str, excerpt.lines))
            parts += [f"<p>{code(excerpt.title)}</p>", preformatted(lines, most=len(lines))]
        return "\n".join([*filter(None, parts), f"<p>look at {self._place(step, step.step)}</p>", "</details>"])

    def _brief(self, step: StepState) -> str:
        return f"<p>{_title(step)} {self._place(step, 'look at it') if self._url else ''}</p>"

    def _place(self, step: StepState, text: str) -> str:
        """Return text as a link to the directory of a step, or as code if the address of the run is unknown."""
        if not self._url:
            return code(text)
        address = f"{self._url}/{quote(step.step, errors='replace')}"
        return f'<a href="{html.escape(address)}">{code(text)}</a>'


def _head(summary: RunState) -> str:
    end = summary.finished
    verdict = _words(end.verdict if end else None, end.cause if end else None, summary.state)
    lines = [f"<h2>{verdict}: {code(summary.project, _LONGEST_NAME)}</h2>"]
    counts = Counter(_standing(step, None, summary.state) for step in _cases(summary))
    missing = (summary.planned_cells or 0) - len(summary.cells)
    what = "cells" if summary.cells or missing > 0 else "commands"
    presets = f" with {code(', '.join(summary.presets))}" if summary.presets else ""
    took = f" in {duration(end.seconds)}" if end else ""
    cost = run_cost.of(summary)
    paid = f"<br>cost: {code(str(cost), _LONGEST_NAME)}" if cost is not None else ""
    of_run = f"run {code(summary.run, _LONGEST_NAME)}{presets}{took}{paid}"
    lines.append(f"<p>{what}: {tally(counts, missing) or 'none'}<br>{of_run}</p>")
    if end is not None and end.message and (not summary.failures or end.verdict is Verdict.CANCELLED):
        lines.append(preformatted(end.message.splitlines()))
    return "\n".join(filter(None, lines))


def _attribution(summary: RunState) -> str:
    if _remarks.has_nothing_in_common(summary):
        return f"<p>{_remarks.NOTHING_IN_COMMON}</p>"
    if not summary.attribution:
        return ""
    findings = "".join(f"<li>{code(str(finding), _LONGEST_FINDING)}</li>" for finding in summary.attribution)
    return f"<p>Failed cells have in common:</p>\n<ul>{findings}</ul>"


def _cases(summary: RunState) -> list[StepState]:
    return summary.cells or [step for step in summary.steps.values() if step.kind is StepKind.COMMAND]


def _metrics(summary: RunState) -> list[str]:
    return list(dict.fromkeys(metric.metric for step in _cases(summary) for metric in step.metrics))


def _has_tests(summary: RunState) -> bool:
    return any(step.cases for step in _cases(summary))


def _title(step: StepState) -> str:
    message = next((line for line in step.message.splitlines() if line.strip()), "")
    title = f"{_words(step.verdict, step.cause, State.DEAD)}: {code(step.name)}"
    return f"{title} {code(message)}" if message else title


def _words(verdict: Verdict | None, cause: str | None, state: State) -> str:
    """Return the verdict of a step or run; if it has no verdict, whether it is going on."""
    if verdict is None:
        return "going on" if state is State.RUNNING else "not ended"
    return html.escape(f"{verdict} ({cause})" if cause else verdict)


def _standing(step: StepState, cause: str | None, state: State = State.DEAD) -> str:
    """Return the verdict of a step, and why the verdict does not count if the step failed."""
    why = f" {_why_uncounted(step)}" if step.has_failed and not step.counts else ""
    return f"{_words(step.verdict, None, state)}{why}" + (f" ({html.escape(cause)})" if cause else "")


def _why_uncounted(step: StepState) -> str:
    return "in quarantine" if step.kind is StepKind.CELL else "not counted"


def _metric(metric: MetricMeasured | None) -> str:
    if metric is None:
        return ""
    return code(str(Metric(metric.metric, metric.value, metric.unit, metric.fault)), _LONGEST_NAME)
