"""`report.html` in a real browser: it opens without errors on all screens, and its grid, filter and links work."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pytest

from tests.browser.conftest import Visit
from tests.browser.runs import HOSTILE, Run, failing, hostile, remarkable, suite
from tests.functional.grid import ORCHESTRATION
from toolbox.ground.model.verdicts import Verdict
from toolbox.records.runs.run_state import RunState
from toolbox.reports import run_page
from toolbox.testing import Workspace

if TYPE_CHECKING:
    from playwright.sync_api import Browser, FloatRect, Locator, Page

pytestmark = pytest.mark.live

SIZES = {"phone": {"width": 360, "height": 740}, "desk": {"width": 1280, "height": 800}}
BAD = "model=large,batch=16,precision=float64"
# Expressions that tests evaluate in a page.
OVERFLOW = "document.documentElement.scrollWidth - innerWidth"
UNNAMED = """[...document.querySelectorAll("a, button, input, select, summary, [tabindex='0']")].filter((node) => {
    const label = node.labels && node.labels[0] ? node.labels[0].textContent : "";
    const by = document.getElementById(node.getAttribute("aria-labelledby") || "");
    return !(node.textContent.trim() || label.trim() || node.getAttribute("aria-label") || (by && by.textContent));
}).map((node) => node.outerHTML)"""
OUTSIDE = """[...document.querySelectorAll("body > *:not(script, .skip)")]
    .filter((node) => !["HEADER", "NAV", "MAIN", "FOOTER"].includes(node.tagName)).map((node) => node.outerHTML)"""
LEVELS = "[...document.querySelectorAll('h1, h2, h3, h4')].map((node) => Number(node.tagName[1]))"


@pytest.fixture
def failed(tmp_path: Path) -> Path:
    """Return the report of a run of 2 x 2 x 2 cells, one of which failed."""
    return run_page.write(failing(tmp_path / "r-1"))


def many(directory: Path) -> RunState:
    """Write a run of 100 cells with long names, and return its state."""
    run = Run(directory)
    for seed in range(100):
        verdict = list(Verdict)[seed % 7]
        run.cell(verdict, message="x" * 500, model=f"a-rather-long-name-{seed % 10}", seed=seed // 10, kind="only")
    return run.write(Verdict.FAILED, "y" * 500)


def details(page: Page, name: str) -> Locator:
    """Return the `details` elements of the steps with a name."""
    return page.locator("details.step").filter(has=page.get_by_text(name, exact=True))


def chips(page: Page) -> list[str]:
    """Return the text of the cells that the grid shows."""
    return [" ".join(text.split()) for text in page.locator("#grid .chip:visible").all_inner_texts()]


@pytest.mark.parametrize(("size", "scheme"), [("phone", "dark"), ("desk", "light")])
@pytest.mark.parametrize("make", [failing, hostile, many, remarkable])
def test_every_page_opens_without_errors_and_fits_the_screen(
    visit: Visit, tmp_path: Path, make: Callable[[Path], RunState], size: str, scheme: str
) -> None:
    page = visit(run_page.write(make(tmp_path / "r-1")), viewport=SIZES[size], color_scheme=scheme)
    page.locator("#open").click()
    assert page.evaluate(OVERFLOW) <= 0
    page.get_by_text("The time line as a table").click()
    assert page.evaluate(OVERFLOW) <= 0


def test_the_page_uses_the_preferred_colour_scheme(visit: Visit, failed: Path) -> None:
    colour = "getComputedStyle(document.body).backgroundColor"
    colours = {visit(failed, color_scheme=scheme).evaluate(colour) for scheme in ("light", "dark")}
    assert colours == {"rgb(246, 245, 241)", "rgb(17, 22, 27)"}


@pytest.mark.parametrize("is_scripted", [True, False])
def test_hostile_text_is_text(visit: Visit, tmp_path: Path, *, is_scripted: bool) -> None:
    page = visit(run_page.write(hostile(tmp_path / "r-1")), java_script_enabled=is_scripted)
    assert page.title() == f"failed: {HOSTILE} r-1"
    assert page.locator("mark").inner_text() == HOSTILE
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 2


def test_hostile_labels_are_text_also_in_a_grid_laid_out_by_the_script(visit: Visit, tmp_path: Path) -> None:
    page = visit(run_page.write(hostile(tmp_path / "r-1")))
    page.get_by_label("Across").select_option("")
    assert page.locator("#grid tbody th").first.inner_text() == HOSTILE
    page.get_by_label("Text").fill(HOSTILE)
    page.reload()
    assert page.get_by_label("Text").input_value() == HOSTILE
    assert page.locator("img").count() == 0


def test_an_injected_script_would_not_run(browser: Browser, failed: Path) -> None:
    """The policy of the page allows only the digest of the report's own script."""
    text = failed.read_text(encoding="utf-8")
    injected = "<script>document.title = 'owned'</script><p onclick=\"document.title = 'owned'\">here</p></main>"
    failed.write_text(text.replace("</main>", injected), encoding="utf-8")
    messages: list[str] = []
    with browser.new_context() as context:
        page = context.new_page()
        page.on("console", lambda message: messages.append(message.text))
        page.goto(failed.as_uri())
        page.get_by_text("here", exact=True).click()
        assert page.title() == "failed: grid r-1"
    assert len([text for text in messages if "Content Security Policy" in text]) == 2


def test_the_grid_is_laid_out_by_any_two_axes(visit: Visit, failed: Path) -> None:
    page = visit(failed)
    page.get_by_label("Down").select_option("precision")
    page.get_by_label("Across").select_option("model")
    assert page.locator("#grid thead th").all_inner_texts() == ["precision ↓ model →", "small", "large"]
    assert page.locator("#grid tbody th").all_inner_texts() == ["float32", "float64"]
    assert chips(page)[-2:] == ["✓ 8 passed", "✗ 16 failed"]
    page.get_by_label("Across").select_option("nothing")
    assert chips(page)[-1] == "✗ large, 16 failed"


def test_the_script_lays_out_the_grid_as_the_page_did(visit: Visit, failed: Path) -> None:
    page = visit(failed)
    before = page.locator("#grid").inner_text()
    page.get_by_label("Across").select_option("nothing")
    assert page.locator("#grid").inner_text() != before
    page.get_by_label("Across").select_option("batch")
    assert page.locator("#grid").inner_text() == before


def test_the_filter_takes_verdicts_and_texts(visit: Visit, failed: Path) -> None:
    page = visit(failed)
    page.get_by_label("passed").uncheck()
    assert chips(page) == ["✗ float64 failed"]
    assert page.locator("#details > details:visible .name").all_inner_texts() == [BAD]
    assert page.locator("#shown").inner_text() == "1 of 8 cells"
    page.get_by_label("passed").check()
    page.get_by_label("Text").fill("SMALL")
    assert page.locator("#shown").inner_text() == "4 of 8 cells"
    page.get_by_label("Text").fill("")
    assert page.locator("#shown").inner_text() == ""


def test_the_filter_also_applies_to_the_metrics(visit: Visit, tmp_path: Path) -> None:
    page = visit(run_page.write(remarkable(tmp_path / "r-1")))
    page.get_by_label("passed").uncheck()
    assert page.locator(".numbers tbody tr:visible .name").all_inner_texts() == ["x=1"]
    page.get_by_label("failed, in quarantine").uncheck()
    assert page.locator(".numbers tbody tr:visible").count() == 0


def test_links_in_metrics_and_remarks_open_the_details_of_the_cell(visit: Visit, tmp_path: Path) -> None:
    page = visit(run_page.write(remarkable(tmp_path / "r-1")))
    for links in (".numbers tbody a", ".remarks a"):
        page.get_by_role("button", name="Close all").click()
        page.locator(links).get_by_text("x=2").click()
        assert details(page, "x=2").get_attribute("open") is not None


def test_a_message_keeps_its_lines(visit: Visit, tmp_path: Path) -> None:
    page = visit(run_page.write(remarkable(tmp_path / "r-1")))
    assert page.locator(".remarks p").first.inner_text().splitlines()[0] == "it is too slow"


def test_a_table_that_scrolls_shows_on_which_side_there_is_more(visit: Visit, tmp_path: Path) -> None:
    run = Run(tmp_path / "r-1")
    run.cell(x=1, metrics=[(f"metric_{number}", 1.0, "tokens/s", "") for number in range(9)])
    page = visit(run_page.write(run.write()), viewport=SIZES["phone"])
    region = page.get_by_role("region", name="Metrics by cell")
    assert region.evaluate("node => node.scrollWidth > node.clientWidth")
    assert has_shadow(page, region)
    region.evaluate("node => { node.scrollLeft = node.scrollWidth; }")
    assert not has_shadow(page, region)


def has_shadow(page: Page, region: Locator) -> bool:
    """Return whether the right edge of a region looks different without the region's background, which is a shadow."""
    box = region.bounding_box()
    assert box is not None
    edge: FloatRect = {"x": box["x"] + box["width"] - 5, "y": box["y"], "width": 5, "height": box["height"]}
    shown = page.screenshot(full_page=True, clip=edge)
    region.evaluate("node => { node.style.background = 'none'; }")
    without = page.screenshot(full_page=True, clip=edge)
    region.evaluate("node => { node.style.background = ''; }")
    return shown != without


def test_the_address_keeps_the_state(visit: Visit, failed: Path) -> None:
    page = visit(failed)
    page.get_by_label("Down").select_option("precision")
    page.get_by_label("passed").uncheck()
    page.get_by_label("Text").fill("large")
    page.locator("#grid .chip:visible").click()
    page.get_by_role("navigation").get_by_role("link", name="Cells").click()
    page.go_back()
    other = visit(failed, at="#" + page.url.partition("#")[2])
    assert other.locator("#grid tbody th").first.inner_text() == "float32"
    assert chips(other) == ["✗ large failed"]
    assert other.get_by_label("Text").input_value() == "large"
    assert other.evaluate("document.activeElement.closest('details').open") is True


def test_a_cell_of_the_grid_opens_its_details(visit: Visit, failed: Path) -> None:
    page = visit(failed)
    page.get_by_role("button", name="Close all").click()
    assert details(page, BAD).get_attribute("open") is None
    page.locator("#grid .chip.v-failed").click()
    assert details(page, BAD).locator("mark").is_visible()
    assert details(page, BAD).locator("mark").inner_text() == "line 20"


def test_a_bar_of_the_time_line_opens_the_details_of_its_step(visit: Visit, failed: Path) -> None:
    page = visit(failed)
    page.locator(".timeline g").first.click()
    assert details(page, "test").last.get_attribute("open") is not None


def test_the_report_can_be_used_by_keyboard(visit: Visit, failed: Path) -> None:
    page = visit(failed)
    page.get_by_role("button", name="Close all").click()
    page.keyboard.press("Control+Home")
    page.get_by_label("Across").focus()
    page.keyboard.press("Tab")  # to the grid itself, which scrolls by the arrow keys
    for _ in range(8):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "chip v-failed"
    page.keyboard.press("Enter")
    assert details(page, BAD).locator("mark").is_visible()
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
    page.keyboard.press("Enter")
    assert details(page, BAD).get_attribute("open") is None


def test_the_first_stop_of_the_keyboard_leads_to_the_content(visit: Visit, failed: Path) -> None:
    page = visit(failed)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_failures_are_opened_and_closed_together(visit: Visit, tmp_path: Path) -> None:
    page = visit(run_page.write(many(tmp_path / "r-1")))
    page.get_by_role("button", name="Close all").click()
    assert page.locator("details.step[open]").count() == 0
    page.get_by_role("button", name="Open all failures").click()
    assert page.locator("#details details.step[open]").count() == page.locator("#details .bad").count() > 50


def test_the_page_works_without_javascript(visit: Visit, failed: Path) -> None:
    page = visit(failed, java_script_enabled=False)
    assert page.get_by_label("Down").is_hidden()
    assert page.get_by_label("Text").is_hidden()
    assert len(chips(page)) == 8
    page.locator("#grid .chip").first.click()
    assert page.locator("#grid .chip").first.get_attribute("href") == "#" + page.url.partition("#")[2]
    opened = details(page, "model=small,batch=8,precision=float32")
    opened.get_by_text("Settings").wait_for()


def test_links_lead_to_the_files_of_the_run(visit: Visit, failed: Path) -> None:
    page = visit(failed)
    links = page.locator("a[href^='./']").evaluate_all("links => links.map((link) => link.href)")
    assert len(links) > 16
    assert [link for link in links if not Path(unquote(link.removeprefix("file://"))).exists()] == []


def test_each_control_has_a_name_and_all_content_is_in_landmarks(visit: Visit, failed: Path) -> None:
    page = visit(failed)
    assert page.evaluate(UNNAMED) == []
    assert page.evaluate(OUTSIDE) == []
    levels = page.evaluate(LEVELS)
    assert levels[0] == 1
    assert [after for before, after in itertools.pairwise(levels) if after > before + 1] == []
    tree = page.locator("body").aria_snapshot()
    for expected in (
        "- banner:",
        "- navigation",
        "- main:",
        "- contentinfo:",
        '- region "Matrix"',
        '- heading "Matrix"',
    ):
        assert expected in tree, expected
    assert 'link "float64 failed"' in tree


def test_a_printed_report_shows_the_failures(visit: Visit, failed: Path) -> None:
    page = visit(failed)
    page.get_by_role("button", name="Close all").click()
    page.emulate_media(media="print")
    assert details(page, BAD).locator("mark").is_visible()
    assert page.get_by_role("navigation").is_hidden()


def test_the_report_of_a_real_run_opens_without_errors(visit: Visit, workspace: Workspace) -> None:
    workspace.write(
        {
            "projects/grid/orchestration.py": ORCHESTRATION,
            "command_args/grid.yaml.j2": "",
            "config/grid.yaml": """
                matrix:
                  axes: {x: [1, 2], y: [a, b]}
                  workload: {command: "echo '<script>alert({@cell.x})</script>'; test {@cell.x}{@cell.y} != 2b"}
                  checks: [{check: log_lacks, text: alert(2)}]
            """,
        }
    )
    outcome = workspace.run("project", "run", "grid")
    report = workspace.run_directory() / "report.html"
    assert f"the report is {report}" in outcome.stdout, str(outcome)
    page = visit(report)
    page.locator("#grid .chip.v-failed").last.click()
    assert "<script>alert(2)</script>" in details(page, "x=2,y=b").locator("figure").first.inner_text()


def test_all_tests_of_a_cell_are_shown_page_by_page(visit: Visit, tmp_path: Path) -> None:
    run = Run(tmp_path / "r-1")
    run.cell(Verdict.FAILED, junit=suite(250, failing="test_bad"), x="a")
    page = visit(run_page.write(run.write(Verdict.FAILED)))
    tests = page.locator("details.all-tests")
    tests.locator("summary").click()
    tests.locator("tbody tr").nth(99).wait_for()
    assert tests.locator("tbody tr").count() == 100
    tests.get_by_text("Later").click()
    tests.get_by_text("Later").click()
    assert tests.locator("output").inner_text() == "201 to 251 of 251"
    tests.locator("input").fill("unit.test_24")
    assert tests.locator("output").inner_text() == "1 to 11 of 11"
    assert tests.locator("tbody tr").first.inner_text().split() == ["tests.unit.test_24", "✓", "passed", "6.000", "s"]
