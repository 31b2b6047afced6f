"""The index of exports in a real browser: it opens without errors on all screens, and shows foreign texts as text."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.conftest import Visit
from tests.browser.runs import HOSTILE
from tests.unit.records.exports.conftest import record_of
from toolbox.records.exports.manifest import FileList
from toolbox.reports.exports import export_index

pytestmark = pytest.mark.live

SIZES = {"phone": {"width": 400, "height": 800}, "desk": {"width": 1280, "height": 800}}
OVERFLOW = "document.documentElement.scrollWidth - innerWidth"
REPORTS = ["report.html", "junit.xml", "summary.json"]


@pytest.mark.parametrize(("size", "scheme"), [("phone", "dark"), ("desk", "light")])
@pytest.mark.parametrize("text", ["smoke", HOSTILE, "x" * 400])
def test_the_page_fits_on_each_screen(visit: Visit, tmp_path: Path, scheme: str, size: str, text: str) -> None:
    files = FileList(files={})
    reasons = [{"file": text, "reason": text}]
    records = [
        record_of(files, run="r" * 120, project="p" * 120, presets=[text], revision=text, reports=REPORTS),
        record_of(files, state="dead", verdict=None, withheld=[text], withheld_count=1, is_complete=False),
        record_of(files, verdict="failed", allowed=reasons, allowed_count=1),
    ]
    file = tmp_path / "index.html"
    file.write_text(export_index.render(records))
    page = visit(file, viewport=SIZES[size], color_scheme=scheme)
    for summary in page.locator("summary").all():
        summary.click()
    assert page.evaluate(OVERFLOW) <= 0
    assert page.locator(".runs > li").count() == 3
    assert page.locator("script").count() == 0
    assert page.locator("a", has_text="report.html").get_attribute("href") == f"./{'p' * 120}/{'r' * 120}/report.html"
