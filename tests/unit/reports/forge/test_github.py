"""GitHub shows a comment about a run, which these tests parse as Markdown and then as HTML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lxml import html
from markdown_it import MarkdownIt

from toolbox.ground.model.events import CheckJudged, MetricMeasured, RunFinished, StepKind
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.records.runs.attribution import Finding
from toolbox.records.runs.run_state import CellAttempt, RunState, State, StepState
from toolbox.reports.forge import github

STARTED = datetime(2026, 11, 21, 1, 2, 3, tzinfo=UTC)
HOSTILE = (
    "a|b ` ``` ~~~ </details></code></pre></td></table> <script>alert(1)</script> <img src=x onerror=y> @octocat #123 "
    "![i](https://evil.example/i.png) [l](https://evil.example) https://evil.example www.evil.example x@evil.example "
    ":tada: GH-1 octo/repo#1 -->  &lt;b&gt; \\` \x1b[31m\x00\u202e\ud800 \u2028end\r\n"
    "\n\n# heading\n\n- item\n\n    code\n\n| t |\n|---|"
)


def cell(
    name: str, verdict: Verdict | None = Verdict.PASSED, message: str = "", number: int = 0, **fields: Any
) -> StepState:
    """Return a cell with an attempt and a metric; a cell that did not pass has the cause `check`."""
    step = f"000__test/{number:03d}__{name}"
    cause = None if verdict is None or verdict.is_pass else Cause.CHECK
    attempts = [CellAttempt(1, f"gpu {name}", STARTED, verdict, cause, message, 1.5)]
    metrics = [MetricMeasured(step, "step_time", 0.25, "s")]
    found = StepState(step, name, StepKind.CELL, verdict, cause, message, 1.5, started=STARTED)
    return replace(found, **{"attempts": attempts, "metrics": metrics, **fields})


def summary(*steps: StepState, message: str = "", **fields: Any) -> RunState:
    """Return a run with these steps."""
    verdicts = [step.verdict for step in steps]
    verdict = Verdict.FAILED if Verdict.FAILED in verdicts else Verdict.PASSED
    end = RunFinished(verdict, Cause.CHECK if verdict is Verdict.FAILED else None, 1, message, 9.5)
    found = {step.step: step for step in steps}
    place, planned = Path("/runs/r-1"), len(steps)
    return replace(
        RunState("r-1", "training", place, State.FINISHED, ("smoke",), STARTED, end, found, planned), **fields
    )


def shown(markdown: str) -> html.HtmlElement:
    """Return the HTML that GitHub renders before it turns texts that look like addresses into links."""
    return html.fragment_fromstring(MarkdownIt("gfm-like", {"linkify": False}).render(markdown), create_parent="main")


def outside_of_code(element: html.HtmlElement) -> Iterator[str]:
    """Yield the text in which GitHub searches for mentions, references and links."""
    if element.tag not in {"code", "pre"}:
        yield element.text or ""
        for child in element:
            yield from outside_of_code(child)
            yield child.tail or ""


def texts(root: html.HtmlElement, tag: str) -> list[str]:
    """Return the text of each element with a tag."""
    return [element.text_content() for element in root.iter(tag)]


def test_the_verdict_comes_first_as_a_word() -> None:
    markdown = github.comment(summary(cell("a"), cell("b", Verdict.FAILED, "too slow", 1)))
    assert markdown.startswith("<h2>failed (check): <code>training</code></h2>\n")
    head = shown(markdown)[1].text_content()
    assert head == "cells: 1 passed, 1 failedrun r-1 with smoke in 9.5 s"


def test_a_failure_is_shown_with_cause_message_and_excerpt(tmp_path: Path) -> None:
    failed = cell("b", Verdict.FAILED, "log_lacks: 'nan' is in stdout.log:2\nmetric: too slow", 1)
    check = CheckJudged(failed.step, "log_lacks", passed=False, message="x", file="stdout.log", line=2)
    failed = replace(failed, checks=[check])
    log = tmp_path / failed.step / "attempt-1" / "stdout.log"
    log.parent.mkdir(parents=True)
    log.write_text("step 1\nloss: nan <b>\nstep 3\n")
    (details,) = shown(github.comment(summary(cell("a"), failed, directory=tmp_path))).iter("details")
    assert texts(details, "summary") == ["failed (check): b log_lacks: 'nan' is in stdout.log:2"]
    assert texts(details, "pre") == [
        "log_lacks: 'nan' is in stdout.log:2\nmetric: too slow",
        "     1  step 1\n     2> loss: nan <b>\n     3  step 3",
    ]


def test_the_attribution_is_shown() -> None:
    run = summary(cell("a"), cell("b", Verdict.FAILED, "x", 1))
    run = replace(run, attribution=[Finding({"machine": "A100", "runtime": "2.4"}, 4, 4, 0, 28)])
    found = shown(github.comment(run))
    assert texts(found, "li") == ["machine=A100 and runtime=2.4: 4 of 4 failed; elsewhere 0 of 28"]


def test_cells_are_a_table_with_their_metrics_and_failures_come_first() -> None:
    ignored = cell("c", Verdict.FAILED, "x", 2, counts=False)
    rows = [texts(row, "td") for row in shown(github.comment(summary(cell("a"), ignored))).iter("tr")]
    assert rows[1:] == [
        ["c", "failed, in quarantine", "check", "gpu c", "1", "1.5 s", "0.25 s"],
        ["a", "passed", "", "gpu a", "1", "1.5 s", "0.25 s"],
    ]


def test_failures_in_quarantine_are_counted_separately() -> None:
    kept = cell("b", Verdict.FAILED, "x", 1, counts=False)
    head = shown(github.comment(summary(cell("a"), kept)))[1].text_content()
    assert head.startswith("cells: 1 passed, 1 failed in quarantine")


def test_a_command_that_may_fail_is_not_in_quarantine() -> None:
    step = StepState("000__prepare/000__x", "x", StepKind.COMMAND, Verdict.FAILED, Cause.PRODUCT, "gone", 2.0)
    step = replace(step, counts=False)
    found = shown(github.comment(summary(step)))
    assert texts(found, "td")[1] == "failed, not counted"
    assert "failed not counted (product): x" in texts(found, "p")
    assert texts(found, "pre") == ["gone\nthe verdict does not count"]


def test_remarks_are_listed_after_the_failures() -> None:
    kept = cell(
        "b",
        Verdict.FAILED,
        f"slow\nin quarantine until 2999-12-31 (ops), so the verdict does not count: {'x' * 200}",
        1,
    )
    kept = replace(kept, counts=False)
    noisy = cell("c", Verdict.PASSED, "time: noisy\nspeed: too few values", 2)
    found = shown(github.comment(summary(cell("a", Verdict.FAILED, "bad"), kept, noisy)))
    assert texts(found, "pre") == ["bad", kept.message, noisy.message]
    assert texts(found, "h3") == ["Remarks"]
    assert texts(found, "p")[-2:] == ["failed in quarantine (check): b", "passed: c"]


def test_omitted_remarks_are_counted() -> None:
    run = summary(*(cell(f"c{number}", Verdict.PASSED, "noisy", number) for number in range(40)))
    found = shown(github.comment(run))
    assert len(texts(found, "pre")) == 30
    assert "and 10 more remarks" in texts(found, "p")


def test_without_remarks_there_is_no_heading_for_them() -> None:
    assert "Remarks" not in github.comment(summary(cell("a"), cell("b", Verdict.FAILED, "x", 1)))


def test_failures_without_a_condition_have_nothing_in_common() -> None:
    run = many([Verdict.FAILED, Verdict.PASSED, Verdict.FAILED, Verdict.PASSED])
    cells = [replace(step, labels={"x": str(number)}) for number, step in enumerate(run.cells)]
    run = replace(run, steps={cell.step: cell for cell in cells})
    assert "<p>No condition on the axes separates the cells that failed" in github.comment(run)


def test_omitted_metrics_are_counted() -> None:
    step = cell("a", metrics=[MetricMeasured("000__test/000__a", f"m{number}", 1.0) for number in range(9)])
    found = shown(github.comment(summary(step)))
    assert texts(found, "th")[-1] == "m5"
    assert "and 3 more metrics" in texts(found, "p")


def test_a_run_without_a_matrix_shows_its_commands() -> None:
    step = StepState("000__prepare/000__x", "x", StepKind.COMMAND, Verdict.ERROR, Cause.INFRASTRUCTURE, "gone", 2.0)
    found = shown(github.comment(summary(step)))
    assert texts(found, "th")[:2] == ["command", "verdict"]
    assert texts(found, "summary") == ["error (infrastructure): x gone"]


@pytest.mark.parametrize(("state", "words"), [(State.RUNNING, "going on"), (State.DEAD, "not ended")])
def test_a_run_that_has_not_ended_says_so(state: State, words: str) -> None:
    run = summary(cell("a", None), finished=None, state=state, planned_cells=3)
    found = shown(github.comment(run))
    assert texts(found, "h2") == [f"{words}: training"]
    assert f"cells: 1 {words}, 2 not started" in found.text_content()


def test_the_message_of_an_end_without_a_failed_step_is_shown() -> None:
    found = shown(github.comment(summary(cell("a"), message="no space\nleft")))
    assert texts(found, "pre") == ["no space\nleft"]


def test_cells_are_links_if_the_address_of_the_run_is_known() -> None:
    run = summary(cell("b 1", Verdict.FAILED, "x"))
    found = shown(github.comment(run, artifacts_url="https://files.example/run?a=1&b=2/"))
    assert {link.get("href") for link in found.iter("a")} == {"https://files.example/run?a=1&b=2/000__test/000__b%201"}


@pytest.mark.parametrize("address", ["javascript:alert(1)", "files", "https://x/ y", 'https://x/">'])
def test_an_invalid_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="artifacts_url"):
        github.comment(summary(), artifacts_url=address)


def hostile(text: str) -> RunState:
    """Return a run in which all untrusted fields have this text."""
    cells = []
    for step in (cell(text, Verdict.FAILED, text), cell(text, Verdict.PASSED, text, 1)):
        metrics = [MetricMeasured(step.step, text, 1.0, text), MetricMeasured(step.step, f"2{text}", None, "", text)]
        attempts = [replace(step.attempts[0], target=text)]
        cells.append(replace(step, metrics=metrics, attempts=attempts))
    run = summary(*cells, message=text)
    attribution = [Finding({text: text}, 1, 1, 0, 1)]
    return replace(run, project=text, run=text, presets=(text, text), attribution=attribution)


def structure(root: html.HtmlElement) -> list[tuple[str, list[str]]]:
    """Return the tags of all elements with the names of their attributes."""
    return [(str(element.tag), list(map(str, element.attrib))) for element in root.iter()]


def assert_is_inert(text: str) -> None:
    """Assert that a text creates no element, and occurs only in code."""
    marker = "zqzqzq"
    plain = shown(github.comment(hostile(marker), artifacts_url="https://files.example"))
    found = shown(github.comment(hostile(marker + text), artifacts_url="https://files.example"))
    assert {entry[0] for entry in structure(found)} <= {entry[0] for entry in structure(plain)}
    assert [entry for entry in structure(found) if entry[1]] == [entry for entry in structure(plain) if entry[1]]
    assert all(link.get("href", "").startswith("https://files.example/000__test/") for link in found.iter("a"))
    assert list(filter(str.strip, outside_of_code(found))) == list(filter(str.strip, outside_of_code(plain)))


def test_foreign_text_makes_no_markup_mention_or_link() -> None:
    assert_is_inert(HOSTILE)
    assert_is_inert(HOSTILE * 20)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(st.sampled_from("`|<>&\"'\\@#![]()*_~=-+:/.\n\r\t \x00\x1b\ud800a1é")))
def test_no_text_makes_markup(text: str) -> None:
    assert_is_inert(text)


def test_blocks_contain_no_empty_lines_and_no_control_characters() -> None:
    markdown = github.comment(hostile(HOSTILE))
    blocks = markdown.removesuffix("\n").split("\n\n")
    assert all(line.startswith("<") for block in blocks for line in block.split("\n"))
    assert not any((ord(char) < 32 and char != "\n") or 0xD800 <= ord(char) < 0xE000 for char in markdown)


def many(verdicts: Sequence[Verdict], message: str = "too slow\n" * 30, **fields: Any) -> RunState:
    """Return a run with one cell for each verdict."""
    return summary(
        *(
            cell(f"model=m{number}", verdict, "" if verdict.is_pass else message, number)
            for number, verdict in enumerate(verdicts)
        ),
        **fields,
    )


def is_whole(markdown: str) -> bool:
    """Return whether each element that is opened is also closed."""
    tags = ("table", "tr", "td", "details", "summary", "pre", "code", "p", "ul", "h2")
    return all(markdown.count(f"<{tag}>") + markdown.count(f"<{tag} ") == markdown.count(f"</{tag}>") for tag in tags)


@pytest.mark.parametrize("limit", [github.FEWEST_BYTES, 20_000, 65_536, 1 << 20])
@pytest.mark.parametrize(
    "verdicts", [[Verdict.PASSED] * 3000, [Verdict.FAILED] * 3000, [Verdict.PASSED, Verdict.FAILED] * 40]
)
@pytest.mark.parametrize("text", ["x", "é|<&`"])
def test_the_limit_is_respected_and_no_element_is_truncated(limit: int, verdicts: list[Verdict], text: str) -> None:
    run = many(verdicts, text * 200, directory=Path("/") / text)
    markdown = github.render(run, limit=limit)
    assert len(markdown.encode()) <= limit
    assert is_whole(markdown)
    assert markdown.startswith("<h2>")


def test_the_least_important_blocks_are_omitted_first() -> None:
    markdown = github.comment(many([Verdict.PASSED] * 3000 + [Verdict.FAILED] * 5))
    found = shown(markdown)
    assert len(texts(found, "pre")) == 5
    rows = [texts(row, "td") for row in found.iter("tr")][1:]
    assert [row[1] for row in rows[:6]] == ["failed"] * 5 + ["passed"]
    assert rows[-1] == [f"and {3005 - len(rows) + 1} more"]
    assert texts(found, "summary")[-1] == "3005 cells"


def test_omitted_failures_are_counted() -> None:
    found = shown(github.comment(many([Verdict.FAILED] * 3000)))
    listed = len(texts(found, "details")) - 1 + sum("failed (check): " in text for text in texts(found, "p"))
    assert f"and {3000 - listed} more steps that did not pass" in texts(found, "p")
    assert listed > 100


def test_a_run_that_fits_is_shown_completely() -> None:
    found = shown(github.step_summary(many([Verdict.PASSED, Verdict.FAILED] * 100)))
    assert len(texts(found, "details")) == 101
    assert len(list(found.iter("tr"))) == 201
    assert "more" not in found.text_content()


def test_the_verdict_always_has_room() -> None:
    markdown = github.render(hostile('"' * 10_000), limit=github.FEWEST_BYTES)
    assert markdown.startswith("<h2>failed (check): ")
    assert is_whole(markdown)


def test_a_limit_without_room_for_the_verdict_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 8192 bytes"):
        github.render(summary(), limit=100)


def test_cancelled_steps_beside_a_failure_are_counted() -> None:
    run = summary(
        cell("a", Verdict.FAILED, "x"), cell("b", Verdict.CANCELLED, "", 1), cell("c", Verdict.CANCELLED, "", 2)
    )
    assert "<p>2 other steps were cancelled</p>" in github.comment(run)
