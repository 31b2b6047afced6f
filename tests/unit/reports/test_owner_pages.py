"""Each owner of cells has a page with these cells, which links into the report."""

from __future__ import annotations

import logging
from pathlib import Path

import lxml.html
import pytest
from lxml.etree import _Element as Element

from tests.browser.runs import HOSTILE, Run
from tests.fakes.history import START
from toolbox.ground.model.verdicts import Verdict
from toolbox.records.results import since_last_run
from toolbox.records.results.since_last_run import Kind, SinceLastRun, VerdictChange
from toolbox.records.runs.layout import RunDirectory
from toolbox.records.runs.run_state import RunState
from toolbox.reports import run_page


def owned(run: Run, owner: object, verdict: Verdict | None = Verdict.PASSED, **labels: object) -> Path:
    """Add a cell with an owner to a run, and return the directory of its attempt."""
    message = "it is wrong\nreally" if verdict is Verdict.FAILED else ""
    attempt = run.cell(verdict, message=message, **labels)  # type: ignore[arg-type]  # labels are not other arguments
    run.plan[-1]["owner"] = owner
    return attempt


def written(run: Run, *changes: VerdictChange) -> RunState:
    """Write a run, its comparison with an earlier run, and its reports."""
    summary = run.write(Verdict.FAILED)
    cells, tests = ([change for change in changes if bool(change.test) is is_test] for is_test in (False, True))
    comparison = SinceLastRun.of(cells, tests, "r0", START, has_more_runs=False, compared=1, new=0, gone=None)
    since_last_run.write(run.directory, comparison if changes else None)
    run_page.write(summary)
    return summary


def pages(run: Run) -> dict[str, Element]:
    """Return the pages of owners, by file name."""
    folder = RunDirectory(run.directory).owners
    return {file.name: lxml.html.fromstring(file.read_text()) for file in folder.iterdir()}


def text(element: Element | None) -> str:
    assert element is not None
    return " ".join("".join(map(str, element.itertext())).split())


def hrefs(element: Element) -> list[str]:
    return [str(link.get("href")) for link in element.iterfind(".//a") if link.get("href") != "#main"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "grid" / "r-1")


def test_each_owner_has_a_page_with_the_owned_cells(run: Run) -> None:
    owned(run, "ada", Verdict.FAILED, x="a", y="1")
    owned(run, "ada", x="b", y="1")
    owned(run, "Team B", x="a", y="2")
    run.cell(Verdict.FAILED, x="b", y="2")
    written(run)
    found = pages(run)
    assert sorted(found) == ["Team_B.html", "ada.html"]
    page = text(found["ada.html"])
    assert "✗ failed (check) x=a,y=1 it is wrong really" in page
    assert "y=2" not in page
    assert "No cell of this owner failed." in text(found["Team_B.html"])
    report = run.directory / "report.html"
    anchors = {f"../report.html#{each.get('id')}" for each in lxml.html.parse(report).iterfind(".//*[@id]")}
    assert {link for link in hrefs(found["ada.html"]) if "#" in link} <= anchors
    assert len(found["ada.html"].findall(".//table//a")) == 2


def test_what_newly_fails_is_first(run: Run) -> None:
    for x in "abcd":
        owned(run, "ada", Verdict.FAILED, x=x)
    written(
        run,
        VerdictChange(Kind.NEWLY_FAILING, run.plan[2]["id"], "x=c", "passed", "failed", "r0"),
        VerdictChange(Kind.NEWLY_FAILING, run.plan[3]["id"], "x=d", "passed", "failed", "r0", test="n.one"),
        VerdictChange(Kind.NEWLY_PASSING, run.plan[1]["id"], "x=b", "failed", "passed", "r0", test="n.two"),
    )
    (page,) = pages(run).values()
    items = [text(item) for item in page.findall(".//ol/li")]
    assert [item.partition(" it is")[0] for item in items] == [
        "newly failing ✗ failed (check) x=c",
        "newly failing ✗ failed (check) x=d",
        "✗ failed (check) x=a",
        "✗ failed (check) x=b",
    ]
    assert items[1].endswith("Tests that newly fail: n.one")
    assert "Newly failing2 since the run r0 of 2026-03-01 02:00 UTC" in text(page)


def test_the_report_links_to_the_pages(run: Run) -> None:
    owned(run, "ada", Verdict.FAILED, x="a")
    owned(run, "bob", x="b")
    written(run)
    report = lxml.html.parse(run.directory / "report.html")
    rows = [text(row) for row in report.findall(".//section[@aria-labelledby='owners']//tbody/tr")]
    assert rows == ["ada11", "bob10"]
    cards = report.findall(".//p[@class='owner']")
    assert [text(card) for card in cards] == ["Owner: ada", "Owner: bob"]
    assert hrefs(cards[0]) == ["./owners/ada.html"]


def test_a_run_without_owners_has_no_pages(run: Run) -> None:
    run.cell(x="a")
    run_page.write(run.write())
    assert not RunDirectory(run.directory).owners.exists()
    assert "owners" not in (run.directory / "report.html").read_text()


OWNERS = [
    HOSTILE,
    "../../up",
    "..",
    "/etc/passwd",
    "a/b",
    "a_b",
    "A_B",
    "\x1b[2Jada",
    "x" * 300,
    "x" * 301,
    "javascript:alert(1)",
    "CON",
    "\u202eeve",
    "漢" * 200,
]


def test_hostile_names_stay_inside_and_are_text(run: Run) -> None:
    for number, owner in enumerate(OWNERS):
        owned(run, owner, Verdict.FAILED, x=number)
    written(run)
    files = [file for file in run.directory.rglob("*.html") if file.name != "report.html"]
    assert len(files) == len(OWNERS)
    assert {file.parent for file in files} == {run.directory / "owners"}
    assert len({file.name.casefold() for file in files}) == len(OWNERS)
    for file in [*files, run.directory / "report.html"]:
        content = file.read_text()
        assert not {"\x1b", "\u202e"} & set(content)
        page = lxml.html.fromstring(content)
        assert (page.findall(".//img"), page.findall(".//main//script")) == ([], [])
        assert not [link for link in hrefs(page) if not link.startswith(("#", "./", "../"))]


@pytest.mark.parametrize("owner", [5, None, ["a"], {"a": 1}, True])
def test_an_owner_that_is_not_a_name_is_ignored(run: Run, owner: object) -> None:
    owned(run, owner, x="a")
    written(run)
    assert not RunDirectory(run.directory).owners.exists()


def test_pages_are_not_written_through_a_link(run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    owned(run, "ada", x="a")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    RunDirectory(run.directory).owners.symlink_to(elsewhere)
    with caplog.at_level(logging.WARNING):
        written(run)
    assert list(elsewhere.iterdir()) == []
    assert "the pages of the owners of cells could not be written: " in caplog.text
    assert (run.directory / "report.html").exists()


def test_an_owner_of_very_many_cells_gets_a_page_of_limited_size(run: Run) -> None:
    for number in range(1600):
        run.planned(x=number)
        run.plan[-1]["owner"] = "ada"
    owned(run, "ada", Verdict.FAILED, x="bad")
    written(run)
    (page,) = pages(run).values()
    assert len(page.findall(".//table//a")) == 1500
    assert "101 cells that passed are not shown here" in text(page)
