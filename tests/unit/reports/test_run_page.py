"""The page `report.html` is parsed as HTML; `tests/browser/` tests it in a real browser."""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import os
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import lxml.html
import pytest
from lxml.etree import _Element as Element
from rich.filesize import decimal as size

from tests.browser.runs import HOSTILE, PHASE, QUARANTINE, REMARK, Run, change, failing, hostile, remarkable, suite
from tests.fakes.ledger import open_resource
from toolbox.ground.model.events import (
    AttemptEnded,
    AttemptSubmitted,
    ConfigurationChanged,
    RunFinished,
    StepFinished,
    StepKind,
    StepStarted,
)
from toolbox.ground.model.verdicts import Verdict
from toolbox.ground.system import redaction
from toolbox.ground.system.redaction import Redactor
from toolbox.records.runs import run_reader
from toolbox.records.runs.journal import Journal
from toolbox.records.runs.run_state import RunState, State
from toolbox.reports import run_page
from toolbox.reports.page import case_tables
from toolbox.reports.terminal import project_runs

BASE_STYLES = Path(run_page.__file__).parent / "base.css"


def read(summary: RunState) -> Element:
    """Return the page of a run."""
    return lxml.html.document_fromstring(run_page.render(summary))


def text_of(element: Element) -> str:
    """Return the text of an element on one line."""
    return " ".join("".join(map(str, element.itertext())).split())


def all_of(page: Element, xpath: str) -> list[Element]:
    """Return the elements that an XPath selects."""
    return [each for each in _found(page, xpath) if isinstance(each, Element)]


def addresses(page: Element) -> list[str]:
    """Return all addresses to which the page refers."""
    return [str(each) for each in _found(page, "//@href | //@src")]


def _found(page: Element, xpath: str) -> list[object]:
    found = page.xpath(xpath)
    assert isinstance(found, list)
    return list(found)


def one(page: Element, xpath: str) -> Element:
    """Return the only element that an XPath selects."""
    (found,) = all_of(page, xpath)
    return found


def details(page: Element, name: str) -> Element:
    """Return the details of a step."""
    return one(page, f'//details[contains(@class, "step")][.//span[@class="name"]="{name}"]')


def data_of(page: Element) -> dict[str, list[list[object]]]:
    """Return the data for the script of the page."""
    found = json.loads(one(page, '//script[@type="application/json"]').text or "")
    assert isinstance(found, dict)
    return found


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a run without cells."""
    return Run(tmp_path / "r-1")


@pytest.fixture
def failed(tmp_path: Path) -> Element:
    """Return the page of the run `failing`."""
    return read(failing(tmp_path / "r-1"))


def test_the_verdict_comes_first(failed: Element) -> None:
    assert text_of(one(failed, "//h1")) == "✗ failed (check) grid"
    assert text_of(one(failed, "//head/title")) == "failed: grid r-1"
    assert [text_of(each) for each in all_of(failed, '//ul[@class="counts"]/li')] == ["1 ✗ failed", "7 ✓ passed"]


def test_a_failure_links_to_the_details_of_its_cell(failed: Element) -> None:
    link = one(failed, '//ol[@class="failures"]/li/a')
    target = one(failed, f'//*[@id="{(link.get("href") or "")[1:]}"]')
    assert "model=large,batch=16,precision=float64" in text_of(link)
    assert target.getparent() is details(failed, "model=large,batch=16,precision=float64")


def test_what_went_wrong_begins_with_two_lines_of_each_message(run: Run) -> None:
    run.cell(Verdict.FAILED, message="2 tests did not pass\na: 3, expected 4\nb: 5, expected 6", x=1)
    shown = one(read(run.write()), '//ol[@class="failures"]/li/p[@class="why"]')
    assert shown.text == "2 tests did not pass\na: 3, expected 4"


def test_the_grid_has_two_axes_and_each_cell_in_its_box(failed: Element) -> None:
    rows = all_of(failed, '//table[@id="grid"]//tr')
    assert [text_of(each) for each in rows[0]] == ["model ↓ batch →", "8", "16"]
    assert [text_of(each) for each in rows[2]] == [
        "large",
        "✓ float32 passed ✓ float64 passed",
        "✓ float32 passed ✗ float64 failed",
    ]


def test_the_grid_does_not_begin_with_an_axis_of_one_value(run: Run) -> None:
    for batch in (8, 16):
        run.cell(model="small", batch=batch)
    rows = all_of(read(run.write()), '//table[@id="grid"]//tr')
    assert [text_of(row) for row in rows] == ["batch ↓cells", "8✓ passed", "16✓ passed"]


def test_a_box_with_many_cells_has_one_symbol_per_cell(run: Run) -> None:
    for seed in range(26):
        run.cell(batch=seed % 2, model=seed % 2, seed=seed)
    first = all_of(read(run.write()), '//table[@id="grid"]//td/a')[0]
    assert first.text_content() == "✓  batch=0,model=0,seed=0: passed"  # type: ignore[attr-defined]


def test_the_evidence_is_marked_between_its_lines(failed: Element) -> None:
    found = one(details(failed, "model=large,batch=16,precision=float64"), './/figure[@class="excerpt"]')
    assert text_of(one(found, ".//mark")) == "line 20"
    numbers = [text_of(each) for each in all_of(found, './/span[@class="n"]')]
    assert numbers == [str(number) for number in range(14, 27)]
    assert one(found, ".//a").get("href", "").endswith("/attempt-1/stdout.log")


def test_a_passed_cell_shows_the_lines_that_its_checks_name(failed: Element) -> None:
    found = one(details(failed, "model=small,batch=8,precision=float32"), './/figure[@class="excerpt"]//pre')
    assert text_of(found) == "19line 19 20line 20 21line 21"


def test_without_evidence_the_end_of_the_log_is_shown(run: Run) -> None:
    run.cell(Verdict.FAILED, log="".join(f"line {number}\r\n" for number in range(1, 101)), x=1)
    found = one(read(run.write(Verdict.FAILED)), "//figure//pre")
    assert text_of(found).split()[:3] == ["86line", "86", "87line"]
    assert text_of(found).endswith("100line 100")


def test_a_log_may_be_huge(run: Run) -> None:
    checks = [(False, "far away", "stdout.log", 5)]
    attempt = run.cell(Verdict.FAILED, checks=checks, x=1)  # type: ignore[arg-type]
    with (attempt / "stdout.log").open("r+b") as log:
        log.truncate(1 << 40)
        log.seek(0, os.SEEK_END)
        log.write(b"\nthe very last line\n")
    assert "the very last line" in text_of(one(read(run.write(Verdict.FAILED)), "//figure//pre"))


def test_a_log_may_have_any_content(run: Run) -> None:
    run.cell(Verdict.FAILED, log=b"\xff\xfe\x00\x1b[31mred\x1b[0m\x9b\xe2\x80\xae\n" + b"x" * 5000, x=1)
    found = text_of(one(read(run.write(Verdict.FAILED)), "//figure//pre"))
    assert found.startswith("1��red�")
    assert found.endswith("xxx...")
    assert len(found) < 400


def test_hostile_text_is_shown_as_text(tmp_path: Path) -> None:
    page = run_page.render(hostile(tmp_path / "r-1"))
    found = lxml.html.document_fromstring(page)
    assert len(all_of(found, "//script")) == 2
    assert all_of(found, "//img | //*[@onerror] | //*[@style] | //title/*") == []
    assert page.count("<script") == page.count("</script") == 2
    assert HOSTILE in text_of(one(found, "//mark"))
    for place in (
        "//h1",
        "//header/pre",
        '//dl[@class="facts"]',
        '//dl[@class="about"]',
        '//table[@id="grid"]',
        "//head/title",
    ):
        assert HOSTILE in text_of(one(found, place)), place


def test_the_page_lists_the_remaining_remote_resources(tmp_path: Path) -> None:
    entry = open_resource(HOSTILE, failure=HOSTILE)
    found = read(replace(failing(tmp_path / "r-1"), resources=[entry]))
    (item,) = all_of(found, '//ul[@class="note"]/li')
    assert text_of(item).count(HOSTILE) == 3


def test_a_page_without_remaining_resources_does_not_mention_them(failed: Element) -> None:
    assert "Remote resources" not in text_of(failed)


def test_hostile_text_reaches_the_script_as_data(tmp_path: Path) -> None:
    data = data_of(read(hostile(tmp_path / "r-1")))
    assert data["cells"][0][1] == HOSTILE
    assert HOSTILE in json.dumps(data["axes"]).replace('\\"', '"')


def test_the_page_allows_only_its_own_script_and_style_and_loads_nothing(failed: Element) -> None:
    policy = one(failed, '//meta[@http-equiv="Content-Security-Policy"]').get("content") or ""
    script, style = (one(failed, xpath).text or "" for xpath in ("//script[not(@type)]", "//style"))
    digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script))
    assert policy.startswith("default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}';".format(*digests))
    assert not re.search(r"unsafe|\*|https?:", policy)
    assert all(each.startswith(("#", "./", "data:image/svg+xml,")) for each in addresses(failed))


def test_links_lead_to_existing_files(failed: Element, tmp_path: Path) -> None:
    links = [each for each in addresses(failed) if each.startswith("./")]
    assert len(links) > 16
    assert [link for link in links if not (tmp_path / "r-1" / unquote(link)).exists()] == []


def test_a_file_name_is_not_used_as_the_scheme_of_a_link(tmp_path: Path) -> None:
    page = read(hostile(tmp_path / "r-1"))
    link = one(page, '//a[text()="files/javascript:alert(1)"]').get("href") or ""
    assert link.startswith("./000__test/")
    assert link.endswith("/attempt-1/files/javascript%3Aalert%281%29")


@pytest.mark.parametrize("file", ["stdout.log", "../../../outside", "/etc/hostname"])
def test_nothing_outside_of_the_run_is_linked(run: Run, tmp_path: Path, file: str) -> None:
    (tmp_path / "outside").write_text("of somebody else")
    attempt = run.cell(Verdict.FAILED, log=None, checks=[(False, "see", file, 1)], x=1)
    (attempt / "stdout.log").symlink_to(tmp_path / "outside")
    (attempt / "files").symlink_to(tmp_path)
    page = read(run.write(Verdict.FAILED))
    assert all_of(page, "//figure") == []
    assert [each for each in addresses(page) if "stdout" in each or "files" in each] == []


def test_files_in_a_linked_directory_are_not_shown(run: Run, tmp_path: Path) -> None:
    attempt = run.cell(Verdict.FAILED, x=1)
    attempt.rename(tmp_path / "elsewhere")
    attempt.symlink_to(tmp_path / "elsewhere")
    assert all_of(read(run.write(Verdict.FAILED)), "//figure") == []


def test_a_secret_in_a_log_or_in_the_name_of_a_file_is_masked(run: Run) -> None:
    before, redactor = redaction.current(), Redactor()
    redactor.add(["hunter22"])
    attempt = run.cell(Verdict.FAILED, log="the password is hunter22\n", x=1)
    for name in ("files/hunter22.txt", "files/hunter22/a"):
        (attempt / name).parent.mkdir(parents=True, exist_ok=True)
        (attempt / name).write_text("1")
    redaction.use(redactor)
    try:
        page = run_page.render(run.write(Verdict.FAILED))
        assert "hunter22" not in page
        assert "***.txt (contains a secret)" in page
    finally:
        redaction.use(before)


def test_a_run_whose_directory_is_gone_has_a_page(tmp_path: Path) -> None:
    end = RunFinished(Verdict.ERROR, None, 3, "the disk is gone", 1.0)
    page = read(RunState("r-1", "grid", tmp_path / "gone", State.FINISHED, finished=end))
    assert text_of(one(page, "//h1")) == "! error grid"
    assert text_of(one(page, "//header/pre")) == "the disk is gone"


@pytest.mark.parametrize("content", ["", "[]", "{", '{"cells": [1]}', '{"argv": 1, "versions": [], "overrides": 1}'])
def test_damaged_files_do_not_prevent_the_page(tmp_path: Path, content: str) -> None:
    summary = failing(tmp_path / "r-1")
    for name in ("run.json", "config.yaml", "presets_applied", "plan.json"):
        (summary.directory / name).write_text(content)
    assert len(all_of(read(summary), "//h1")) == 1


def test_a_version_that_is_not_known_is_omitted(tmp_path: Path) -> None:
    summary = failing(tmp_path / "r-1")
    (summary.directory / "run.json").write_text('{"versions": {"python": "3.12.3", "topgallant": null}}')
    assert text_of(one(read(summary), '//dt[.="Versions"]/following-sibling::dd[1]')) == "python 3.12.3"


def test_a_running_run_shows_its_waiting_cells(run: Run) -> None:
    run.cell(None, x=1)
    run.planned(x=2)
    summary = run.write(None)
    summary = replace(summary, state=State.RUNNING)
    assert summary.started is not None
    page = lxml.html.document_fromstring(run_page.render(summary, now=summary.started + timedelta(seconds=90)))
    assert text_of(one(page, "//h1")) == "… going on grid"
    assert "So far1 min 30 s" in text_of(one(page, "//header"))
    assert [text_of(each) for each in all_of(page, '//table[@id="grid"]//td')] == ["… going on", "· not started"]
    assert "The cell has not started." in text_of(details(page, "x=2"))


def test_a_failure_in_quarantine_has_its_own_mark(tmp_path: Path) -> None:
    page = read(remarkable(tmp_path / "r-1"))
    counts = [text_of(each) for each in all_of(page, '//ul[@class="counts"]/li')]
    assert counts == ["1 \u22a0 failed in quarantine", "3 ✓ passed"]
    boxes = [text_of(each) for each in all_of(page, '//table[@id="grid"]//td')]
    assert boxes == ["✓ passed", "\u22a0 failed, in quarantine", "✓ passed", "✓ passed"]
    assert text_of(one(details(page, "x=1"), ".//h3")) == "\u22a0 failed, in quarantine (check) x=1"
    assert all_of(page, '//*[contains(@class, "v-failed ") or @class="v-failed"]') == []
    assert all_of(page, '//*[@id="failures"]') == []


def test_the_owner_of_a_quarantine_is_shown_once(tmp_path: Path) -> None:
    summary = remarkable(tmp_path / "r-1")
    plan = json.loads((summary.directory / "plan.json").read_text())
    plan["cells"][1]["quarantine"] = {"reason": "issue 9", "owner": "ops", "expires": "2999-12-31"}
    (summary.directory / "plan.json").write_text(json.dumps(plan))
    found = text_of(details(read(summary), "x=1"))
    assert QUARANTINE in found
    assert found.count("issue 9") == found.count("does not count") == 1


def test_a_failure_in_quarantine_shows_the_end_of_its_log(tmp_path: Path) -> None:
    assert text_of(one(details(read(remarkable(tmp_path / "r-1")), "x=1"), ".//figure//pre")) == "1begin 2end"


def test_remarks_are_listed(tmp_path: Path) -> None:
    remarks = all_of(read(remarkable(tmp_path / "r-1")), '//*[@id="remarks"]/following-sibling::ol/li')
    assert [text_of(one(each, "./a")) for each in remarks] == [
        "\u22a0 failed, in quarantine (check) x=1",
        "✓ passed x=2",
    ]
    shown = [one(each, './p[@class="text"]').text for each in remarks]
    assert shown == [f"it is too slow\n{QUARANTINE}", REMARK]


def test_a_long_remark_keeps_its_end(run: Run) -> None:
    message = "\n".join(["x" * 1000, *map(str, range(30)), QUARANTINE])
    run.cell(Verdict.FAILED, message=message, is_quarantined=True, x=1)
    lines = (one(read(run.write()), '//p[@class="text"]').text or "").splitlines()
    assert lines == [f"{'x' * 397}...", "0", "1", "2", "... 24 lines ...", "27", "28", "29", QUARANTINE]


def test_without_remarks_there_is_no_section(failed: Element) -> None:
    assert all_of(failed, '//*[@id="remarks"]') == []


def test_the_metrics_of_all_cells_are_one_table(tmp_path: Path) -> None:
    rows = all_of(read(remarkable(tmp_path / "r-1")), '//table[contains(@class, "numbers")]//tr')
    assert [text_of(each) for each in rows[0]] == ["cell", "speed", "memory"]
    assert [[text_of(each) for each in row] for row in rows[1:]] == [
        ["✓passed: x=0", "75.012 tokens/s[70, -]", "8,000,000,000 bytes"],
        [
            "\u22a0failed, in quarantine: x=1",
            "75.012 tokens/s[70, 80], +0.0 %",
            "- not known: stdout.log has no 'memory'",
        ],
        ["✓passed: x=2", "69 tokens/s↓ below [70, 80], -8.0 %", "8,000,000,000 bytes"],
        ["✓passed: x=3", "75.012 tokens/s[70, 80], +0.0 %", "8,000,000,000 bytes"],
    ]
    assert one(rows[2], ".//*[@title]").get("title") == "stdout.log has no 'memory'"


def test_each_table_writes_large_metrics_without_an_exponent(tmp_path: Path) -> None:
    page = read(remarkable(tmp_path / "r-1"))
    table = '//table[caption = "Metrics"]//td[@class = "number"]'
    assert "8,000,000,000" in [text_of(each) for each in all_of(page, table)]


@pytest.mark.parametrize(
    ("bound", "text"),
    [
        ({"upper": 0.2}, "0.25 s↑ above [-, 0.2]"),
        ({"mean": 0.2}, "0.25 s+25.0 %"),
        ({"lower": 0.1, "upper": 0.3, "mean": 0}, "0.25 s[0.1, 0.3]"),
        ({"lower": 1, "upper": 2, "samples": 4}, "0.25 s[1, 2]"),
        ({"lower": 1, "upper": 2, "mean": 1, "unit": "ms"}, "0.25 s"),
        ({"lower": "x", "upper": 2}, "0.25 s"),
        ([0.1, 0.2], "0.25 s"),
        (7, "0.25 s"),
    ],
)
def test_a_range_is_shown_if_the_plan_has_it_in_the_same_unit(run: Run, bound: object, text: str) -> None:
    run.cell(x=1)
    missing = dict.fromkeys(("lower", "upper", "mean", "samples", "unit"))
    run.plan[0]["bounds"] = {"step_time": {**missing, **bound} if isinstance(bound, dict) else bound}
    assert text_of(one(read(run.write()), '//table[contains(@class, "numbers")]//td')) == text


def test_omitted_metrics_are_counted(run: Run) -> None:
    for x in range(252):
        run.cell(x=x, metrics=[(f"m{number}", 1.0, "", "") for number in range(31 if x == 0 else 1)])
    page = read(run.write())
    assert len(all_of(page, '//table[contains(@class, "numbers")]/tbody/tr')) == 250
    assert "The page has no room for 2 more cells and 1 more metrics" in text_of(page)


def test_failures_without_a_condition_have_nothing_in_common(run: Run) -> None:
    for x in range(4):
        for y in range(4):
            run.cell(Verdict.FAILED if (x, y) in {(0, 1), (2, 3)} else Verdict.PASSED, x=x, y=y)
    summary = run.write(Verdict.FAILED)
    assert summary.attribution == []
    assert "No condition on the axes separates the cells that failed" in text_of(read(summary))


@pytest.mark.parametrize("verdicts", ["fffff", "fpppp", "ffp", "ppppp"])
def test_no_remark_if_too_few_cells_failed(run: Run, verdicts: str) -> None:
    for x, letter in enumerate(verdicts):
        run.cell(Verdict.FAILED if letter == "f" else Verdict.PASSED, x=x)
    assert "in common" not in text_of(read(run.write(Verdict.FAILED)))


@pytest.mark.parametrize(
    ("seconds", "marks"),
    [
        (0.1, ["0.000 s", "0.025 s", "0.050 s", "0.075 s", "0.100 s"]),
        (0.5, ["0.00 s", "0.12 s", "0.25 s", "0.38 s", "0.50 s"]),
        (8, ["0.0 s", "2.0 s", "4.0 s", "6.0 s", "8.0 s"]),
        (240, ["0.0 s", "1 min 0 s", "2 min 0 s", "3 min 0 s", "4 min 0 s"]),
    ],
)
def test_the_marks_of_the_time_line_differ(run: Run, seconds: float, marks: list[str]) -> None:
    run.cell(x=1)
    summary = run.write()
    began = datetime(2026, 11, 21, tzinfo=UTC)
    steps = {name: replace(step, started=began, seconds=seconds) for name, step in summary.steps.items()}
    summary = replace(summary, steps=steps)
    assert [text_of(each) for each in all_of(read(summary), '//*[@class="marks"]/span')] == marks


def test_the_page_of_a_dead_run_says_so(run: Run) -> None:
    run.cell(None, x=1)
    page = read(run.write(None))
    assert text_of(one(page, "//h1")) == "? not ended grid"
    assert "its process ended before the run did" in text_of(one(page, "//header"))


def test_a_run_without_a_matrix_has_no_grid(tmp_path: Path) -> None:
    page = read(Run(tmp_path / "r-1").write())
    assert all_of(page, '//table[@id="grid"] | //*[@id="cells"]') == []
    assert text_of(details(page, "test")).startswith("✓ passed test 2.0 s")


def test_remarks_of_the_plan_are_shown(run: Run) -> None:
    run.cell(Verdict.XFAILED, x=1)
    run.plan[0]["xfail"] = {"reason": "issue 7", "owner": "ops", "expires": "2027-01-31"}
    found = text_of(details(read(run.write()), "x=1"))
    assert "expected to fail until 2027-01-31 (ops): issue 7" in found
    assert "train --fast" in found


def test_each_attempt_links_to_its_directory(run: Run) -> None:
    first = run.cell(Verdict.FAILED, message="too slow", x=1)
    (first.parent / "attempt-2").mkdir()
    step = f"{PHASE}/{first.parent.name}"
    run.events += [
        AttemptSubmitted(step, 2, "workload", "other"),
        AttemptEnded(step, 2, "other", Verdict.PASSED, None, "", 2.0),
        StepFinished(step, "x=1", StepKind.CELL, Verdict.PASSED, None, "", 4.0),
    ]
    found = details(read(run.write()), "x=1")
    rows = all_of(found, './/table[caption="Attempts"]/tbody/tr')
    assert [text_of(row) for row in rows] == ["1local✗ failed (check) 1.0 stoo slow", "2other✓ passed 2.0 s"]
    assert (one(rows[0], ".//a").get("href") or "").endswith("/attempt-1/")
    assert "the cell passed at attempt 2" in text_of(found)


def test_a_changed_field_shows_its_author(failed: Element) -> None:
    code = one(failed, '//pre[@id="code"]')
    assert [text_of(each) for each in all_of(code, './/span[contains(@class, "set")]')] == ["2 steps: 10 preset smoke"]
    assert len(all_of(code, './/span[contains(@class, "line")]')) == 3
    assert "preset smoketraining.steps10grid.yaml:39 base.yaml:1" in text_of(
        one(failed, '//h3[@id="changes"]/following::table[1]')
    )


def test_the_last_author_of_a_field_is_shown_for_all_its_lines(tmp_path: Path) -> None:
    summary = failing(tmp_path / "r-1")
    text = 'a:\n  "b.c": |\n    one\n    two\n  d:\n  - 1\n  - 2\ne: 3\n'
    (summary.directory / "config.yaml").write_text(text)
    changes = [change("a", "{}", "preset p"), change("a.d[1]", "2", "--overrides")]
    (summary.directory / "run.json").write_text(json.dumps({"changes": changes}))
    with Journal(summary.directory) as journal:
        journal.append(ConfigurationChanged('a["b.c"]', "x", "set_config"))
    lines = all_of(read(run_reader.read(summary.directory)), '//pre[@id="code"]/span')
    assert [text_of(each)[1:].strip() for each in lines] == [
        "a: preset p",
        '"b.c": | set_config',
        "one",
        "two",
        "d: preset p",
        "- 1",
        "- 2 --overrides",
        "e: 3",
    ]
    assert "set" not in (lines[-1].get("class") or "").split()


def test_the_page_of_a_thousand_cells_is_limited_in_size(run: Run) -> None:
    log = "".join(f"{'x' * 100} {number}\n" for number in range(1, 31))
    for seed in range(1000):
        verdict = Verdict.FAILED if seed % 2 else Verdict.PASSED
        run.cell(
            verdict, message="m" * 3000, log=log, checks=[(False, "see", "stdout.log", 20)], seed=seed, half=seed % 2
        )
    page = run_page.render(run.write(Verdict.FAILED))
    assert len(page) < 3_000_000
    assert page.count('<details class="step') == 1001
    assert "There are many cells" in page
    assert "no room for excerpts of all logs" in page


def test_failed_cells_are_kept_on_a_page_with_too_many_cells(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolbox.reports.page.step_details.MAX_CELLS", 2)
    for x in range(4):
        run.cell(Verdict.FAILED if x == 3 else Verdict.PASSED, x=x)
    page = read(run.write(Verdict.FAILED))
    assert [cell[1] for cell in data_of(page)["cells"]] == ["x=0", "x=3"]
    assert "2 cells that passed are not shown here" in text_of(page)


def test_cells_that_overlap_are_in_separate_lanes(run: Run) -> None:
    for x in range(3):
        run.cell(x=x)
    summary = run.write()
    begin = datetime(2026, 11, 21, tzinfo=UTC)
    begun = zip(summary.steps.items(), (0, 0, 0.5, 1), strict=True)
    steps = {name: replace(step, started=begin + timedelta(seconds=second)) for (name, step), second in begun}
    summary = replace(summary, steps=steps)
    bars = all_of(read(summary), '//*[@class="timeline"]/*[@class="row"][2]//*[@class="bar"]')
    assert [(bar.get("x"), bar.get("width"), bar.get("y")) for bar in bars] == [
        ("0.0%", "50.0%", "0"),
        ("25.0%", "50.0%", "14"),
        ("50.0%", "50.0%", "0"),
    ]


def test_a_cell_with_a_foreign_key_has_a_hashed_anchor(run: Run) -> None:
    run.cell(x=1)
    run.plan[0]["id"] = '"><script>'
    begun = run.events[2]
    assert isinstance(begun, StepStarted)
    run.events[2] = replace(begun, key='/test/"><script>')
    page = read(run.write())
    assert [each.get("id", "")[:2] for each in all_of(page, '//*[@class="body"]')] == ["s-", "s-"]


def test_the_page_is_private_and_beside_the_summary(tmp_path: Path) -> None:
    path = run_page.write(failing(tmp_path / "r-1"))
    assert path == tmp_path / "r-1" / "report.html"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_report_that_cannot_be_rendered_leaves_no_outdated_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = failing(tmp_path / "r-1")
    run_page.write(summary)
    monkeypatch.setattr("toolbox.reports._web_page._environment", lambda _: None)
    with pytest.raises(AttributeError):
        run_page.write(summary)
    assert not (summary.directory / "report.html").exists()


def test_a_report_that_cannot_be_written_does_not_change_the_exit_code(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    summary = failing(tmp_path / "r-1")
    (summary.directory / "report.html" / "in the way").mkdir(parents=True)
    with caplog.at_level(logging.WARNING):
        assert project_runs.run_and_show(lambda _listeners, _redactor: (summary, 1), as_json=False) == 1
    assert "the report `run_page` of this run could not be written: IsADirectoryError" in caplog.text


def test_the_end_of_a_run_names_its_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    summary = failing(tmp_path / "r-1")
    project_runs.run_and_show(lambda _listeners, _redactor: (summary, 1), as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == [f"the report is {summary.directory}/report.html", f"the run is in {summary.directory}"]


@pytest.mark.parametrize(
    ("count", "text"), [(999, "999 bytes"), (1500, "1.5 kB"), (2_000_000, "2.0 MB"), (3_400_000_000, "3.4 GB")]
)
def test_sizes_have_readable_units(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_has_enough_contrast_to_its_background(scheme: int) -> None:
    """WCAG 2.2, section 1.4.3, requires a contrast ratio of at least 4.5 by the formula of relative luminance."""
    blocks = re.findall(r":root \{(.*?)\}", BASE_STYLES.read_text(), re.DOTALL)
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", blocks[scheme]))
    pairs = [(ink, on) for ink in ("ink", "quiet", "accent") for on in ("ground", "paper")]
    verdicts = [name.removesuffix("-tint") for name in colours if name.endswith("-tint")]
    pairs += [(verdict, on) for verdict in verdicts for on in ("ground", "paper", f"{verdict}-tint")]
    pairs += [("mark-ink", "mark"), ("ink", "running-tint"), ("running", "running-tint"), ("quiet", "running-tint")]
    assert len(verdicts) == 11
    assert {pair: _contrast(*(colours[name] for name in pair)) for pair in pairs if _low(colours, pair)} == {}


def _low(colours: dict[str, str], pair: tuple[str, str]) -> bool:
    return _contrast(colours[pair[0]], colours[pair[1]]) < 4.5


def _contrast(one: str, other: str) -> float:
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_a_cell_shows_its_failed_tests_and_its_slowest_tests(run: Run) -> None:
    run.cell(Verdict.FAILED, junit=suite(30, failing="test_bad"), x="a")
    page = read(run.write(Verdict.FAILED))
    assert text_of(one(page, '//p[@class="tests"]')) == "Tests: 1 ✗ failed, 30 ✓ passed; 1 min 49 s in total"
    failures, slowest, _ = all_of(page, '//table[@class="tests"]')
    assert [text_of(row) for row in all_of(failures, ".//tbody/tr")] == [
        "test_bad.test_bad✗ failed1.000 s test_badtest_bad"
    ]
    assert next(text_of(row) for row in all_of(slowest, ".//tbody/tr")) == "tests.unit.test_29✓ passed7.250 s"


def test_the_page_counts_test_cases_in_the_words_of_the_terminal(run: Run) -> None:
    run.cell(Verdict.FAILED, junit=suite(2, failing="test_bad"), x="a")
    summary = run.write(Verdict.FAILED)
    (cell,) = summary.cells
    assert cell.tests == "2 passed, 1 failed"
    assert text_of(one(details(read(summary), "x=a"), "./summary/*[@class='took']")) == f"tests: {cell.tests}; 1.0 s"


def test_the_script_gets_all_tests_of_a_cell(run: Run) -> None:
    run.cell(junit=suite(2), x="a")
    data: dict[str, Any] = data_of(read(run.write()))
    assert data["cases"] == {
        "c-000000000000": {"suites": ["tests.unit"], "rows": [[0, "test_0", 0, 0.0], [0, "test_1", 0, 0.25]]}
    }


def test_tests_for_which_the_page_has_no_room_are_left_out(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case_tables.CaseTables, "__init__", _with_room(case_tables.CaseTables.__init__, rows=40))
    run.cell(junit=suite(30), x="a")
    run.cell(junit=suite(30), x="b")
    run.cell(Verdict.FAILED, junit=suite(5, failing="test_bad"), x="c")
    page = read(run.write(Verdict.FAILED))
    data: dict[str, Any] = data_of(page)
    assert data["cases"].keys() == {"c-000000000002", "c-000000000000"}
    assert "The page has no room for all 30 tests" in text_of(details(page, "x=b"))


def _with_room(original: Callable[..., None], *, rows: int) -> Callable[..., None]:
    return lambda *arguments: original(*arguments, rows=rows)


def test_without_the_files_the_failures_of_the_journal_are_shown(run: Run) -> None:
    attempt = run.cell(Verdict.FAILED, junit=suite(5, failing="test_bad"), x="a")
    (attempt / "files" / "junit.xml").unlink()
    shown = text_of(details(read(run.write(Verdict.FAILED)), "x=a"))
    assert "Tests: 1 ✗ failed, 5 ✓ passed" in shown
    assert "test_bad.test_bad✗ failed" in shown
    assert "The JUnit files of this cell are missing or were changed" in shown
