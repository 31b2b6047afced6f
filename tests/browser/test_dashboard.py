"""The dashboard in a real browser: it opens without errors, and its charts, filter, keys and links work."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import Visit
from tests.browser.runs import HOSTILE
from tests.browser.test_report import LEVELS, OUTSIDE, OVERFLOW, SIZES, UNNAMED
from tests.unit.reports.site.history import NOW, Ended, Past, wobbling
from toolbox.ground.model.bounds import Bound, Method
from toolbox.records.results.queries import Filter
from toolbox.reports.site import dashboard

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.live

DAYS = 60
BOUNDS = {"grid": {("small-id", "step_time"): Bound(0.9, 1.1, 1.0, 20, Method.PREDICTION, "s")}}
# Returns the number of colours of a chart, and the number of its pixels that are not empty.
DRAWN = """(canvas) => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const points = new Uint32Array(data.buffer).filter((point) => point !== 0);
    return [new Set(points).size, points.length];
}"""


def year(directory: Path) -> Path:
    """Write the dashboard of two projects, one of which has a slower, a failing and a quarantined cell."""
    past = Past()
    run = directory / "runs" / "r 1"
    run.mkdir(parents=True)
    (run / "report.html").write_text("<!doctype html><title>the run</title>", encoding="utf-8")
    values = wobbling(DAYS, after=1.2, shifted=12)
    for day, value in enumerate(values):
        tests = {
            HOSTILE: ("failed", 1.0),
            "a_name_that_is_long" * 9: ("error", 1.0),
            "slow": ("passed", 2.0 + day // 59),
        }
        failed = Ended("failed", "product", f"{HOSTILE}\nand more", attempts=("failed",), cost=1.5, tests=tests)
        cells = {
            "small": Ended(metrics={"step_time": value, "memory": 3 + value}, cost=1.0 + day % 7),
            "model=large,a-name-that-is-rather-long=yes,precision=bfloat16": failed,
            "medium": Ended(metrics={"step_time": values[0]}, counts=False, noisy=day == 0),
        }
        past.run(cells, days_ago=DAYS - 1 - day, directory=str(run))
    past.run({"only": Ended()}, project=f"other {HOSTILE}")
    with past.stored(directory) as connection:
        return dashboard.write(connection, directory / "site", Filter(), bounds=BOUNDS, now=NOW)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the first page of a dashboard."""
    return year(tmp_path_factory.mktemp("dashboard"))


def page_of(index: Path, kind: str) -> Path:
    """Return the page of a kind: `index`, `project`, `cell` or `hostile`."""
    names = {"index": "index.html", "project": "projects/grid.html", "cell": "cells/grid~small-id.html"}
    if kind == "hostile":
        return next(path for path in (index.parent / "cells").iterdir() if "large" in path.name)
    return index.parent / names[kind]


def drawn(page: Page) -> None:
    """Scroll to all charts of a page, because a chart is drawn when it is near the screen."""
    for chart in page.locator("[data-chart]").all():
        chart.scroll_into_view_if_needed()
        chart.locator("canvas").wait_for()


def until(page: Page, is_so: Callable[[], bool]) -> None:
    """Wait at most ten seconds for a condition. `wait_for_function` does not work, because the page forbids `eval`."""
    for _ in range(200):
        if is_so():
            return
        page.wait_for_timeout(50)
    pytest.fail("the condition did not hold within ten seconds")


def labels(page: Page) -> list[str]:
    """Draw the only chart of a page, and return the labels of its horizontal axis, line by line."""
    page.add_init_script("""
        window.written = [];
        const { clearRect, fillText } = CanvasRenderingContext2D.prototype;
        CanvasRenderingContext2D.prototype.clearRect = function (...box) {
            window.written = [];
            return clearRect.apply(this, box);
        };
        CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
            if (this.textAlign === "center") window.written.push(text);
            return fillText.call(this, text, x, y);
        };
    """)
    page.reload()
    drawn(page)
    until(page, lambda: bool(page.evaluate("window.written.length")))
    return list(page.evaluate("window.written"))


def rows(page: Page) -> list[str]:
    """Return the names of the cells that the table of runs shows."""
    return page.locator(".grid tr[data-states]:visible a").all_inner_texts()


@pytest.mark.parametrize(("size", "scheme"), [("phone", "dark"), ("desk", "light")])
@pytest.mark.parametrize("kind", ["index", "project", "cell", "hostile"])
def test_every_page_opens_without_errors_and_fits_the_screen(
    visit: Visit, index: Path, kind: str, size: str, scheme: str
) -> None:
    page = visit(page_of(index, kind), viewport=SIZES[size], color_scheme=scheme)
    drawn(page)
    for summary in page.locator("details > summary").all():
        summary.click()
    assert page.evaluate(OVERFLOW) <= 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_charts_are_drawn(visit: Visit, index: Path, scheme: str) -> None:
    page = visit(page_of(index, "cell"), color_scheme=scheme)
    drawn(page)
    found = page.locator("[data-chart] canvas")
    assert found.count() == 2
    for chart in found.all():
        colours, points = chart.evaluate(DRAWN)
        assert colours > 20
        assert points > 3000


def test_the_costs_are_drawn(visit: Visit, index: Path) -> None:
    page = visit(index)
    drawn(page)
    assert page.locator("[data-chart] canvas").evaluate(DRAWN)[1] > 3000
    assert page.locator("[data-chart] output").inner_text() == "2026-11-21: 5.50 USD"


def few(directory: Path, *, count: int, seconds: float) -> Path:
    """Write the dashboard of `count` runs, `seconds` apart, with a metric and a price."""
    past = Past()
    for number in range(count):
        past.run({"small": Ended(metrics={"step_time": 1.0}, cost=2.5)}, days_ago=number * seconds / 86400)
    with past.stored(directory) as connection:
        return dashboard.write(connection, directory / "site", Filter(), now=NOW)


def test_costs_of_a_single_day_are_drawn_within_a_month(visit: Visit, tmp_path: Path) -> None:
    found = labels(visit(few(tmp_path, count=1, seconds=0)))
    assert len(found) > 3
    assert {label.split()[-1] for label in found} <= {"Oct", "Nov", "2026"}


@pytest.mark.parametrize(("count", "seconds"), [(1, 0), (2, 1), (8, 6), (8, 20)])
def test_the_times_of_runs_close_together_differ_on_the_axis(
    visit: Visit, tmp_path: Path, count: int, seconds: float
) -> None:
    page = visit(page_of(few(tmp_path, count=count, seconds=seconds), "cell"))
    found = [label for label in labels(page) if ":" in label]
    assert len(set(found)) == len(found) > 1
    assert page.locator("[data-chart] canvas").evaluate(DRAWN)[0] > 5


def test_charts_adapt_to_a_smaller_window_and_other_colours(visit: Visit, index: Path) -> None:
    page = visit(page_of(index, "cell"), viewport=SIZES["desk"], color_scheme="light")
    drawn(page)
    chart = page.locator("[data-chart] canvas").first
    before = chart.evaluate("canvas => canvas.toDataURL()")
    page.emulate_media(color_scheme="dark")
    until(page, lambda: chart.evaluate("canvas => canvas.toDataURL()") != before)
    page.set_viewport_size({"width": 360, "height": 740})
    until(page, lambda: chart.evaluate("canvas => canvas.getBoundingClientRect().width") < 360)
    assert page.evaluate(OVERFLOW) <= 0


def test_the_keyboard_moves_between_the_values_of_a_chart(visit: Visit, index: Path) -> None:
    page = visit(page_of(index, "cell"))
    drawn(page)
    chart = page.locator("[data-chart]", has=page.get_by_label("step_time by run"))
    chart.locator(".plot").focus()
    page.keyboard.press("End")
    assert "2026-11-21 07:00 UTC: 1.2 s" in chart.locator("output").inner_text()
    assert "above its bounds. Run r-60, revision abc60" in chart.locator("output").inner_text()
    page.keyboard.press("ArrowLeft")
    assert "2026-11-20 07:00 UTC" in chart.locator("output").inner_text()
    page.keyboard.press("Home")
    assert "within its bounds. Run r-1, revision abc1" in chart.locator("output").inner_text()


def test_the_mouse_shows_the_value_below_it(visit: Visit, index: Path) -> None:
    page = visit(page_of(index, "cell"))
    drawn(page)
    chart = page.locator("[data-chart]").first
    chart.locator(".u-over").hover()
    assert "2026-10-" in chart.locator("output").inner_text()


def test_the_filter_selects_by_name_and_state_and_the_address_keeps_it(visit: Visit, index: Path) -> None:
    page = visit(page_of(index, "project"))
    assert len(rows(page)) == 3
    page.get_by_label("Cell", exact=True).fill("M")
    assert len(rows(page)) == 3
    page.get_by_label("Show").select_option("regression")
    assert rows(page) == ["small"]
    assert page.locator(".metrics tbody:visible").count() == 1
    assert page.locator("#shown").inner_text() == "1 of 3 cells"
    other = visit(page_of(index, "project"), at="#" + page.url.partition("#")[2])
    assert rows(other) == ["small"]
    other.get_by_label("Show").select_option("any")
    other.get_by_label("Cell", exact=True).fill("large")
    assert rows(other) == ["model=large,a-name-that-is-rather-long=yes,precision=bfloat16"]


def test_links_lead_from_page_to_page_and_to_the_run(browser: Browser, index: Path) -> None:
    page = browser.new_page()
    page.goto(index.as_uri())
    page.get_by_role("link", name="grid", exact=True).click()
    page.locator(".grid").get_by_role("link", name="small", exact=True).click()
    assert page.locator("h1").inner_text().startswith("small")
    page.get_by_role("link", name="r-60").click()
    assert page.title() == "the run"
    page.go_back()
    page.get_by_role("navigation").get_by_role("link", name="grid").click()
    page.get_by_role("navigation").get_by_role("link", name="Dashboard").click()
    assert page.url == index.as_uri()
    page.close()


@pytest.mark.parametrize("is_scripted", [True, False])
def test_hostile_text_is_text(visit: Visit, index: Path, *, is_scripted: bool) -> None:
    page = visit(page_of(index, "hostile"), java_script_enabled=is_scripted)
    assert page.locator(".runs .said").first.inner_text() == f"{HOSTILE} and more"
    assert page.locator("img").count() == 0
    first = visit(index, java_script_enabled=is_scripted)
    assert first.title() == "Dashboard"
    assert first.get_by_role("link", name=f"other {HOSTILE[:20]}").is_visible()


def test_the_page_works_without_javascript(visit: Visit, index: Path) -> None:
    page = visit(page_of(index, "cell"), java_script_enabled=False)
    assert page.get_by_text("Without JavaScript there are no charts.").is_visible()
    assert page.locator("[data-chart]").first.is_hidden()
    page.get_by_text("step_time as a table").click()
    assert page.get_by_role("region", name="step_time as a table").get_by_text("r-60").is_visible()
    other = visit(page_of(index, "project"), java_script_enabled=False)
    assert other.get_by_label("Show").is_hidden()
    assert len(rows(other)) == 3


def test_the_keyboard_reaches_everything(visit: Visit, index: Path) -> None:
    page = visit(page_of(index, "cell"))
    drawn(page)
    page.locator("body").click(position={"x": 0, "y": 0})
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.className || document.activeElement.tagName"))
    assert reached >= {"A", "plot", "SUMMARY", "scroll"}


@pytest.mark.parametrize("kind", ["index", "project", "cell"])
def test_each_control_has_a_name_and_all_content_is_in_landmarks(visit: Visit, index: Path, kind: str) -> None:
    page = visit(page_of(index, kind))
    drawn(page)
    assert page.evaluate(UNNAMED) == []
    assert page.evaluate(OUTSIDE) == []
    levels = page.evaluate(LEVELS)
    assert levels[0] == 1
    assert [after for before, after in itertools.pairwise(levels) if after > before + 1] == []


def test_symbols_have_accessible_names(visit: Visit, index: Path) -> None:
    page = visit(page_of(index, "project"))
    tree = page.locator(".grid").aria_snapshot()
    assert 'cell "✗ failed"' in tree
    assert 'columnheader "run r-60 of 2026-11-21 07:00 UTC"' in tree
    strip = visit(index).locator(".strip").first.aria_snapshot()
    assert 'link "2026-11-21: passed"' in strip
