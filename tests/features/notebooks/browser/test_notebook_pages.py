"""Pages of executed notebooks in a real browser: nothing in them runs or loads, and links lead there and back."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import Visit
from tests.browser.runs import Run
from tests.features.notebooks.fakes import notebook_results
from tests.features.notebooks.fakes.notebook_results import code, display, executed, markdown, notebook, stream
from toolbox.features.notebooks.worker.notebook_results import FailedCell, TestOutcome
from toolbox.ground.model.verdicts import Verdict
from toolbox.reports import run_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.live

SIZES = {"phone": {"width": 400, "height": 740}, "desk": {"width": 1280, "height": 800}}
OVERFLOW = "document.documentElement.scrollWidth - innerWidth"
FAILED = FailedCell(2, "raise ValueError('no data')", "ValueError: no data", "Traceback ...")
HOST = "http://127.0.0.1:9"
RUN = "document.title='owned'"
ATTACKS = [
    f"<script>{RUN}</script>",
    f"<script src='{HOST}/a.js'></script>",
    f"<img src='{HOST}/a.png' onerror=\"{RUN}\">",
    f'<img src=x onerror="{RUN}">',
    f"<svg onload=\"{RUN}\"><script>{RUN}</script><image href='{HOST}/b.png'/></svg>",
    f"<iframe src='{HOST}/c'></iframe><iframe srcdoc='<script>parent.{RUN}</script>'></iframe>",
    f"<meta http-equiv='refresh' content='0;url={HOST}/d'>",
    f"<base href='{HOST}/'><link rel='stylesheet' href='{HOST}/e.css'><link rel='prefetch' href='{HOST}/f'>",
    f"<style>@import '{HOST}/g.css'; body {{ background: url({HOST}/h.png) }}</style>",
    f"<p style=\"background: url('{HOST}/i.png')\">styled</p>",
    f"<form action='{HOST}/j'><button autofocus onfocus=\"{RUN}\">b</button></form>",
    f"<object data='{HOST}/k'></object><embed src='{HOST}/l'><video src='{HOST}/m' autoplay></video>",
    f'<math><mtext><table><mglyph><style><img src=x onerror="{RUN}"></style></mglyph></table></mtext></math>',
    f'<noscript><p title="</noscript><img src=x onerror={RUN}>"></noscript>',
    f"<a href=\"javascript:{RUN}\">link</a><a href='data:text/html,<script>1</script>'>d</a><a href='file:///x'>f</a>",
    "</div></div></main></body></html><h1>outside</h1>",
]
SVG = f'<svg xmlns="http://www.w3.org/2000/svg" onload="{RUN}"><script>{RUN}</script><image href="{HOST}/n.png"/></svg>'


def hostile() -> dict[str, object]:
    """Return a notebook with attacks in all its parts."""
    text = "".join(ATTACKS)
    cells = [*map(markdown, ATTACKS), markdown(f"[x](javascript:{RUN}) ![y]({HOST}/md.png) <{HOST}/auto>\n\n$x$")]
    cells.append(markdown("![](attachment:a.svg)", attachments={"a.svg": {"image/svg+xml": SVG}}))
    for attack in ATTACKS:
        outputs = [stream(attack), display(text_html=attack), display(text_markdown=attack), display(text_latex=attack)]
        cells.append(code(attack, *outputs, count=text, id=text, metadata={"tags": [text]}))
    error = {"output_type": "error", "ename": text, "evalue": text, "traceback": [f"\x1b[31m{text}\x1b]0;{text}\x07"]}
    isolated = {**display(text_html=text), "metadata": {"text/html": {"isolated": True}}}
    widget = {"application/vnd.jupyter.widget-view+json": {"model_id": text}, "application/javascript": RUN}
    image = {**display(image_png=f'"><script>{RUN}</script>'), "metadata": {"image/png": {"width": text, "alt": text}}}
    cells.append(code("1", error, isolated, {**isolated, "data": widget}, image, display(image_svg=SVG)))
    state = {"widgets": {"application/vnd.jupyter.widget-state+json": {"state": text}}}
    return notebook(
        *cells, kernelspec={"name": text, "display_name": text}, title=text, authors=[{"name": text}], **state
    )


def with_notebook(directory: Path, document: object) -> tuple[Path, Path]:
    """Write a run with one notebook that failed; return its report and the page of the notebook."""
    run = Run(directory / "r-1", project="notebooks")
    for runtime in ("classic", "current"):
        for machine in ("small", "large"):
            is_bad = (runtime, machine) == ("current", "large")
            attempt = run.cell(Verdict.FAILED if is_bad else Verdict.PASSED, runtime=runtime, machine=machine)
            outcome = TestOutcome.FAILED if is_bad else TestOutcome.PASSED
            notebook_results.write(attempt, "fit", document, outcome=outcome, failed=FAILED if is_bad else None)
    return run_page.write(run.write(Verdict.FAILED)), attempt / "notebooks/fit.html"


def test_nothing_in_a_hostile_notebook_runs_or_loads(visit: Visit, tmp_path: Path) -> None:
    _, file = with_notebook(tmp_path, hostile())
    page = visit(file)
    for link in page.locator("main a").all():
        assert (link.get_attribute("href") or "").startswith(
            ("#", "http://127.0.0.1:9/auto")
        ) or not link.get_attribute("href")
    page.wait_for_load_state("networkidle")
    assert page.title() == "fit: failed"
    assert page.locator("script, iframe, form, object, embed, style:not(head style), meta:not(head meta)").count() == 0
    assert page.locator("main h1", has_text="outside").count() > 0
    assert page.locator("body > h1").count() == 0


def test_the_policy_alone_stops_scripts_and_requests(browser: Browser, tmp_path: Path) -> None:
    _, file = with_notebook(tmp_path, notebook(markdown("x")))
    attacks = "".join(each for each in ATTACKS if "refresh" not in each and "prefetch" not in each)
    file.write_text(file.read_text().replace('<main id="main" tabindex="-1">', f'<main id="main">{attacks}'))
    context = browser.new_context()
    page = context.new_page()
    requests: list[str] = []
    page.on("requestfinished", lambda request: requests.append(request.url))
    context.route(f"{HOST}/**", lambda route: requests.append(route.request.url))
    page.goto(file.as_uri())
    page.wait_for_load_state("networkidle")
    assert page.title() == "fit: failed"
    assert {url for url in requests if not url.startswith(("file:", "data:", "about:"))} == set()
    context.close()


def test_pages_and_charts_fit_the_screen(visit: Visit, tmp_path: Path) -> None:
    wide = code("1", stream("x" * 5000), display(text_html=f"<table><tr>{'<td>cell</td>' * 60}</tr></table>"))
    report, file = with_notebook(tmp_path, notebook(markdown("# Title"), wide))
    for each, size, scheme in itertools.product((report, file), SIZES, ("light", "dark")):
        page = visit(each, viewport=SIZES[size], color_scheme=scheme)
        assert page.evaluate(OVERFLOW) <= 0, (each.name, size, scheme)


def test_one_click_leads_from_each_cell_of_the_grid_to_a_notebook(visit: Visit, tmp_path: Path) -> None:
    report, _ = with_notebook(tmp_path, notebook())
    page = visit(report)
    links = page.locator("#grid .direct")
    assert [" ".join(text.split()) for text in links.all_inner_texts()] == ["\u2197 fit"] * 3 + ["fit"]
    addresses = [link.evaluate("link => link.href") for link in links.all()]
    files = sorted((tmp_path / "r-1").glob("*/*/attempt-1/notebooks/fit.html"))
    assert addresses == [file.resolve().as_uri().replace("=", "%3D").replace(",", "%2C") for file in files]
    assert [visit(file).title() for file in files] == ["fit: passed"] * 3 + ["fit: failed"]


def test_the_details_of_a_cell_lead_to_the_notebook_and_back(visit: Visit, tmp_path: Path) -> None:
    report, file = with_notebook(tmp_path, executed("1 + 1", "raise ValueError('no data')"))
    page = visit(report)
    page.locator("#grid .chip.v-failed").click()
    step = page.locator("details.step[open]").filter(has_text="current")
    link = step.locator(".notebook figcaption a", has_text="fit")
    target = link.evaluate("link => link.href")
    assert target == file.resolve().as_uri().replace("=", "%3D").replace(",", "%2C")
    shown = visit(file)
    assert "ValueError" in shown.locator(".output_error").inner_text()
    assert shown.locator("header a").first.evaluate("link => link.href").startswith(report.resolve().as_uri())


def test_the_bar_of_each_cell_has_a_text_and_a_failed_cell_a_cross(visit: Visit, tmp_path: Path) -> None:
    report, _ = with_notebook(tmp_path, notebook())
    page = visit(report)
    page.locator("#open").click()
    bars = page.locator("details.step[open] .usage g[class^='v-']")
    assert [text.partition(",")[0] for text in bars.locator("title").all_text_contents()] == [
        *("cell 1: passed", "cell 2: failed", "cell 3: passed"),
    ]
    assert bars.locator("text.cross").all_text_contents() == ["\u2717"]


@pytest.fixture(scope="module")
def ten_by_ten(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a run of ten runtimes on ten machines, one of which failed in each row; return its report."""
    run = Run(tmp_path_factory.mktemp("ten-by-ten") / "r-1", project="notebooks")
    for row in range(10):
        for column in range(10):
            is_bad = row == column
            verdict = Verdict.FAILED if is_bad else Verdict.PASSED
            attempt = run.cell(verdict, metrics=(), runtime=f"framework-{row}.1", machine=f"machine-{column}")
            if is_bad:
                notebook_results.write(attempt, "energy", notebook(), outcome=TestOutcome.FAILED, failed=FAILED)
    return run_page.write(run.write(Verdict.FAILED))


def test_ten_runtimes_on_ten_machines_are_on_one_screen(visit: Visit, ten_by_ten: Path) -> None:
    for size in SIZES.values():
        page = visit(ten_by_ten, viewport=size)
        grid = page.locator("#grid")
        box = grid.bounding_box()
        assert box is not None
        assert box["width"] <= size["width"]
        assert box["height"] <= size["height"] - 100
        assert grid.evaluate("grid => grid.parentElement.scrollWidth <= grid.parentElement.clientWidth")
        chips = grid.locator(".chip").all()
        assert len(chips) == 100
        assert min(box["width"] for chip in chips if (box := chip.bounding_box())) >= 20


def test_a_box_of_a_failed_cell_leads_to_the_failed_notebook(visit: Visit, ten_by_ten: Path) -> None:
    page = visit(ten_by_ten, viewport=SIZES["desk"])
    addresses = "links => links.map(link => link.href)"
    links = page.locator("#grid .direct")
    expected = sorted(links.evaluate_all(addresses))
    assert len(expected) == 10
    assert all(address.endswith("/attempt-1/notebooks/energy.html") for address in expected)
    page.locator("#columns").select_option("0")
    page.locator("#rows").select_option("1")
    assert sorted(links.evaluate_all(addresses)) == expected
    page.locator("input[name=verdict][value=failed]").uncheck()
    assert page.locator("#grid .direct:visible").count() == 0
