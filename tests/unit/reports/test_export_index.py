"""The index of exports shows records, which may come from elsewhere, as text."""

from __future__ import annotations

import html

from tests.unit.records.exports.conftest import record_of
from toolbox.records.exports.manifest import FileList
from toolbox.reports.exports import export_index

HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e"
NOTHING = FileList(files={})


def test_texts_of_a_record_are_escaped_and_the_page_has_no_script() -> None:
    allowed = [{"file": HOSTILE, "reason": HOSTILE}]
    withheld = record_of(NOTHING, presets=[HOSTILE], revision=HOSTILE, withheld=[HOSTILE], withheld_count=1)
    page = export_index.render([withheld, record_of(NOTHING, allowed=allowed, allowed_count=1)])
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert not any(character in page for character in "\x1b\u202e")
    assert "script-src 'none'" in html.unescape(page)


def test_reports_are_linked_below_the_page() -> None:
    page = export_index.render([record_of(NOTHING, project="p+q", run="r", reports=["report.html", "junit.xml"])])
    assert 'href="./p%2Bq/r/report.html"' in page
    assert 'href="./p%2Bq/r/junit.xml"' in page
    assert "summary.json" not in page


def test_the_page_of_many_runs_with_long_lists_is_limited() -> None:
    files = [f"{index:03d}{'x' * 490}" for index in range(100)]
    record = record_of(NOTHING, withheld=files, withheld_count=7_000)
    page = export_index.render([record] * 1_500)
    assert "1500 runs, newest first; only the newest 1000 are listed" in page
    assert "7000 files left out" in page
    assert len(page) < 10_000_000


def test_an_empty_output_has_a_page_too() -> None:
    page = export_index.render([])
    assert "There are no runs." in page
    assert export_index.MARKER in page
