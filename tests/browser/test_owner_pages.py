"""The page of an owner in a real browser: it opens without errors on all screens, and leads into the report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import Visit
from tests.browser.runs import HOSTILE, Run
from toolbox.ground.model.verdicts import Verdict
from toolbox.records.runs.layout import RunDirectory
from toolbox.reports import run_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.live

SIZES = {"phone": {"width": 400, "height": 800}, "desk": {"width": 1280, "height": 800}}
OVERFLOW = "document.documentElement.scrollWidth - innerWidth"


def page_of(directory: Path, owner: str = "ada", name: str = "") -> Path:
    """Write a run of 6 x 4 cells of one owner, and return the page of the owner. Every fifth cell failed."""
    run = Run(directory)
    for number in range(24):
        is_bad = number % 5 == 0
        attempt = run.cell(
            Verdict.FAILED if is_bad else Verdict.PASSED,
            message=f"{name or 'it is wrong'}\nreally" if is_bad else "",
            name=f"{name}{number}" if name else "",
            runtime=f"{name[:40]}a-rather-long-name-{number // 4}",
            machine=f"machine-{number % 4}",
        )
        run.plan[-1]["owner"] = owner
        executed = attempt / "files/executed"  # of a feature, to which the page links
        executed.mkdir(parents=True)
        for notebook in ("energy", "fit"):
            (executed / f"{notebook}.ipynb").write_text("{")
    run_page.write(run.write(Verdict.FAILED))
    (page,) = RunDirectory(directory).owners.iterdir()
    return page


@pytest.mark.parametrize(("size", "scheme"), [("phone", "dark"), ("desk", "light")])
@pytest.mark.parametrize("text", ["", HOSTILE])
def test_the_page_opens_without_errors_and_fits_the_screen(
    visit: Visit, tmp_path: Path, text: str, size: str, scheme: str
) -> None:
    file = page_of(tmp_path / "r-1", text or "ada", text)
    page = visit(file, viewport=SIZES[size], color_scheme=scheme)
    assert page.locator("h1").inner_text() == (text or "ada")
    assert page.evaluate(OVERFLOW) <= 0
    assert page.locator("ol.failures > li").count() == 5
    assert page.locator("img").count() == 0


@pytest.mark.parametrize("link", ["ol.failures a .name", ".grid .v-failed"])
def test_a_failed_cell_leads_to_its_details_in_the_report(browser: Browser, tmp_path: Path, link: str) -> None:
    file = page_of(tmp_path / "r-1")
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(file.as_uri())
        page.locator(link).first.click()
        assert page.url.startswith((file.parent.parent / "report.html").as_uri() + "#c-")
        opened = page.locator("details.step[open]").filter(has_text="a-rather-long-name-0").first
        assert opened.locator(".body").is_visible()
        page.locator("p.owner a").locator("visible=true").first.click()
        assert page.locator("h1").inner_text() == "ada"
