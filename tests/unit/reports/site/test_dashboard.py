"""The dashboard has pages with the results of runs, and shows untrusted text safely."""

from __future__ import annotations

import hashlib
import html
import os
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.unit.reports.site.history import NOW, Ended, Past, nightly, wobbling
from toolbox.ground.model.bounds import Bound, Method
from toolbox.ground.model.errors import UsageError
from toolbox.records.results.flakiness import CLEAN_KEYS
from toolbox.records.results.queries import Filter
from toolbox.reports.site import dashboard, site_directory
from toolbox.reports.site.site_directory import file_name

HOSTILE = "<script>document.title='owned'</script>\"'><img src=x onerror=alert(1)></title>{{ 7 * 7 }}"
LARGEST = 2_000_000
ALL = Filter()
ASSETS = Path(dashboard.__file__).parent / "assets"


def site(past: Past, directory: Path, where: Filter = ALL, **options: object) -> Path:
    """Write the dashboard of a past, and return the directory of the dashboard."""
    with past.stored(directory) as connection:
        return dashboard.write(connection, directory / "site", where, now=NOW, **options).parent  # type: ignore[arg-type]


@pytest.fixture
def past() -> Past:
    """Return a past without runs."""
    return Past()


def pages(directory: Path) -> dict[str, str]:
    """Return the pages of a site by their paths."""
    found = sorted(directory.rglob("*.html"))
    return {str(path.relative_to(directory)): path.read_text(encoding="utf-8") for path in found}


def text_of(page: str) -> str:
    """Return the visible text of a page."""
    body = re.sub(r"<(style|script|title)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", body)).split())


def links(directory: Path) -> Iterator[Path]:
    """Yield the files to which the links of a site lead."""
    for path, page in pages(directory).items():
        for href in re.findall(r'<a [^>]*?href="([^"#]+)"', page):
            yield (directory / path).parent / unquote(html.unescape(href))


def test_the_chart_library_is_the_one_that_its_readme_names() -> None:
    folder = ASSETS / "uplot"
    table = dict(re.findall(r"^\| `(\S+)` \| `(\w{64})` \|$", (folder / "README.md").read_text(), flags=re.MULTILINE))
    assert table == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("uPlot*")}


def test_the_page_of_an_empty_store_says_what_to_do(tmp_path: Path) -> None:
    found = pages(site(Past(), tmp_path))
    assert list(found) == ["index.html"]
    assert "The store has no runs. A run is recorded when it ends" in text_of(found["index.html"])


def test_one_run_is_on_all_pages(past: Past, tmp_path: Path) -> None:
    past.run({"small": Ended(metrics={"step_time": 0.25})})
    found = pages(site(past, tmp_path))
    assert list(found) == ["cells/grid~small-id.html", "index.html", "projects/grid.html"]
    assert "grid ✓ passed" in text_of(found["index.html"])
    assert "step_time 0.25 s" in text_of(found["projects/grid.html"])
    assert "2026-11-21 07:00 UTC 0.25 r-1 abc1" in text_of(found["cells/grid~small-id.html"])


def test_a_run_outside_of_the_baseline_has_a_cost_and_no_other_effect(past: Past, tmp_path: Path) -> None:
    past.run({"small": Ended(metrics={"step_time": 0.25}, cost=2.0)}, days_ago=1)
    past.run({"small": Ended("failed", "product", "broken by a pull request", cost=3.0)}, baseline=False)
    found = {path: text_of(page) for path, page in pages(site(past, tmp_path)).items()}
    assert "grid ✓ passed" in found["index.html"]
    assert "5.00 USD" in found["projects/grid.html"]
    assert not any("broken by a pull request" in text for text in found.values())


def test_failed_and_slower_tests_of_the_latest_result_are_shown_with_a_link(past: Past, tmp_path: Path) -> None:
    run = tmp_path / "runs/r"
    run.mkdir(parents=True)
    (run / "report.html").touch()
    for day in range(5, 0, -1):
        tests = {"quick": ("passed", 0.1), "slow": ("passed", 4.0 + day / 10), "bad": ("passed", 1.0)}
        past.run({"small": Ended(tests=tests)}, days_ago=day)
    tests = {"quick": ("passed", 0.9), "slow": ("passed", 8.6), "bad": ("failed", 0.5), "new": ("passed", 60.0)}
    past.run({"small": Ended("failed", "check", tests=tests)}, directory=str(run))
    directory = site(past, tmp_path)
    for page in ("projects/grid.html", "cells/grid~small-id.html"):
        text = text_of(pages(directory)[page])
        assert "1 failed, 3 passed in the run r-6" in text
        assert "m.bad failed 0.500 s why bad has failed m.slow slower 8.600 s 4.300 s" in text
        assert "m.quick" not in text
        assert "m.new" not in text
    assert run / "report.html" in {path.resolve() for path in links(directory)}


def test_many_failed_tests_are_counted(past: Past, tmp_path: Path) -> None:
    past.run({"small": Ended("failed", tests={f"t{number}": ("failed", 0.1) for number in range(50)})})
    text = text_of(pages(site(past, tmp_path))["projects/grid.html"])
    assert (text.count("has failed"), "and 30 more failures" in text) == (20, True)


def test_the_tests_of_a_cell_without_recent_runs_are_not_shown(past: Past, tmp_path: Path) -> None:
    past.run({"old": Ended("failed", tests={"bad": ("failed", 0.5)})}, days_ago=40)
    for day in range(30):
        past.run({"small": Ended()}, days_ago=day)
    assert "m.bad" not in text_of(pages(site(past, tmp_path))["projects/grid.html"])


def test_all_links_lead_to_existing_files(past: Past, tmp_path: Path) -> None:
    run = tmp_path / "runs" / "a #1 100%?"
    run.mkdir(parents=True)
    (run / "report.html").touch()
    past.run({"small": Ended(metrics={"step_time": 1})}, directory=str(run))
    found = list(links(site(past, tmp_path)))
    assert [path for path in found if not path.exists()] == []
    assert {path.resolve() for path in found if path.name == "report.html"} == {run / "report.html"}


def test_a_run_whose_directory_is_gone_is_shown_without_a_link(past: Past, tmp_path: Path) -> None:
    past.run({"small": Ended()}, directory="/gone/r-1")
    directory = site(past, tmp_path)
    assert "r-1 /gone/r-1 was not found" in text_of(pages(directory)["projects/grid.html"])
    assert not any(path.name == "report.html" for path in links(directory))


@pytest.mark.parametrize(
    "directory", ["javascript:alert(1)", "", "relative", "x\udcff", "//host/share", "/a/../../etc"]
)
def test_an_odd_directory_of_a_run_makes_no_invalid_link(tmp_path: Path, directory: str) -> None:
    assert site_directory.Reports().address(directory, tmp_path / "index.html") is None


def test_hostile_text_is_shown_as_text(tmp_path: Path) -> None:
    past = Past(unit=HOSTILE)
    ended = Ended("failed", "product", HOSTILE, {HOSTILE: 1.5}, ("failed", "passed"), cost=1.0)
    columns = dict.fromkeys(["message", "directory", "currency", "revision"], HOSTILE)
    for number in range(2):
        past.run({HOSTILE: ended}, project=HOSTILE, run=f"{HOSTILE}{number}", **columns)  # type: ignore[arg-type]
    found = pages(site(past, tmp_path))
    assert len(found) == 3
    for path, page in found.items():
        assert HOSTILE[:20] in html.unescape(page), path
        assert "<script>document" not in page, path
        assert "<img" not in page, path
        assert "49" not in re.findall(r"<title>(.*?)</title>", page)[0], path


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a/b", "a_b"),
        ("A", "a"),
        ("a b", "a-b"),
        ("../x", "x"),
        ("é", "e"),
        ("", "x"),
        ("a" * 300, "a" * 301),
        ("~", "-"),
    ],
)
def test_different_names_have_different_pages(one: str, other: str) -> None:
    first, second = file_name(one).lower(), file_name(other).lower()
    assert first != second
    assert re.fullmatch(r"[a-z0-9_.~-]{6,120}", first)
    assert not first.startswith((".", "-"))


def test_no_name_collides_with_the_page_of_another() -> None:
    assert file_name(file_name("A").removesuffix(".html")) != file_name("A")
    assert file_name("a", "b~c") != file_name("a~b", "c") != file_name("a", "b", "c")


def test_a_run_that_died_and_cells_without_metrics_are_shown(past: Past, tmp_path: Path) -> None:
    past.run({"small": Ended(None, seconds=None)}, state="dead", verdict=None, exit_code=None, seconds=None)
    found = pages(site(past, tmp_path))
    assert "grid ? not ended" in text_of(found["index.html"])
    assert "2026-11-21 07:00 UTC, dead" in text_of(found["index.html"])
    assert "Metrics" not in text_of(found["projects/grid.html"])


def test_a_project_without_cells_is_shown(past: Past, tmp_path: Path) -> None:
    past.run({}, verdict="error", cause="configuration", message="no such preset")
    found = pages(site(past, tmp_path))
    assert "none was run" in text_of(found["index.html"])
    assert "no such preset" in text_of(found["projects/grid.html"])


def test_a_lasting_change_for_the_worse_is_a_regression(tmp_path: Path) -> None:
    found = pages(site(nightly(wobbling(60, after=1.2, shifted=12)), tmp_path))
    assert "small grid +20.0 % step_time 1.000 1.200 s 2026-11-10 abc48 to abc49" in text_of(found["index.html"])
    assert "presets differ" not in text_of(found["index.html"])
    assert re.findall(r'<span class="state [^>]*>([^<]*)<', found["projects/grid.html"]) == ["regression"]
    assert 'data-states="regression changed"' in found["projects/grid.html"]
    assert "+20.0 % worse since 2026-11-10" in text_of(found["cells/grid~small-id.html"])


@pytest.mark.parametrize(("after", "ago"), [(0.8, 0), (1.2, 40)])
def test_an_improvement_or_an_old_change_is_no_regression(tmp_path: Path, after: float, ago: float) -> None:
    found = pages(site(nightly(wobbling(60, after=after, shifted=12), ago=ago), tmp_path))
    assert "There are no regressions." in text_of(found["index.html"])
    assert "small level changed" in text_of(found["projects/grid.html"])


@pytest.mark.parametrize(
    ("lower", "upper", "shown", "at_the_value"),
    [(0.5, 0.9, "above [0.5, 0.9]", "1 above r-3"), (1.5, 2.5, "below, better [1.5, 2.5]", "1 below r-3")],
)
def test_values_out_of_bounds_in_force_are_marked(
    tmp_path: Path, lower: float, upper: float, shown: str, at_the_value: str
) -> None:
    for unit, is_in_force in (("s", True), ("ms", False)):
        bounds = {"grid": {("small-id", "step_time"): Bound(lower, upper, 1.0, 20, Method.PREDICTION, unit)}}
        found = pages(site(nightly([1.0] * 3), tmp_path / unit, bounds=bounds))
        for part in ("small out of bounds", shown):
            assert (part in text_of(found["projects/grid.html"])) is is_in_force
        assert (at_the_value in text_of(found["cells/grid~small-id.html"])) is is_in_force


def test_numbers_may_be_of_any_size(tmp_path: Path) -> None:
    values = [1e308, -1e308, 5e-324, 0.0, 123456789.0, 12345.6, 1.5e-7, -0.25] * 3
    found = pages(site(nightly(values), tmp_path))
    assert "step_time -0.25 s" in text_of(found["projects/grid.html"])
    assert "nan" not in found["projects/grid.html"].partition("</style>")[2]


def test_bounds_that_are_not_in_force_are_marked(tmp_path: Path) -> None:
    found = pages(site(nightly(wobbling(20)), tmp_path))
    assert re.search(r"within \[0.98\d+, 1.01\d+\] \* not in force", text_of(found["projects/grid.html"]))


def test_a_cell_that_passes_and_fails_under_the_same_code_is_flaky(past: Past, tmp_path: Path) -> None:
    for day in range(10):
        past.run({"small": Ended(attempts=("failed", "passed")), "large": Ended()}, days_ago=day)
    found = pages(site(past, tmp_path))
    assert "1 of 2 cells" in text_of(found["index.html"])
    assert "small grid flaky 10 of 10 revisions" in text_of(found["index.html"])


def test_the_slowest_cells_come_first(past: Past, tmp_path: Path) -> None:
    past.run({"small": Ended(seconds=61), "large": Ended(seconds=3700)})
    assert "large grid 1 h 1 min small grid 1 min 1 s" in text_of(pages(site(past, tmp_path))["index.html"])


def test_costs_are_summed_over_projects_by_month_and_day(past: Past, tmp_path: Path) -> None:
    for project, days_ago in (("grid", 0), ("grid", 1), ("train", 1), ("train", 30)):
        past.run({"small": Ended(cost=1.25)}, project=project, days_ago=days_ago)
    past.run({"small": Ended(attempts=("passed",))}, project="free")
    text = text_of(pages(site(past, tmp_path))["index.html"])
    assert "2026-11 4 4 min 0 s 3.75 USD 1 attempt without a price 2026-10 1 1 min 0 s 1.25 USD" in text
    assert "2026-11-20 2 2 min 0 s 2.50 USD" in text
    assert "Cost in 2026-11 2.50 USD" in text


def test_costs_are_shown_by_project_and_the_parts_of_failures_and_retries(past: Past, tmp_path: Path) -> None:
    past.run({"small": Ended(attempts=("failed", "passed"), cost=3.0)})
    past.run({"small": Ended("failed", cost=0.053)}, project="train")
    found = pages(site(past, tmp_path))
    text = text_of(found["index.html"])
    assert "By project in 2026-11" in text
    assert "grid 1 2 min 0 s 3.00 USD 1.50 1.50" in text
    assert "train 1 1 min 0 s 0.053 USD 0.053" in text


def test_since_limits_the_runs(tmp_path: Path) -> None:
    past = nightly([1.0] * 10)
    found = pages(site(past, tmp_path, Filter(since=NOW - timedelta(days=3))))
    assert "1 project, 3 runs since 2026-11-18" in text_of(found["index.html"])
    assert "Values 3" in text_of(found["cells/grid~small-id.html"])


def test_skipped_cells_do_not_count_as_passed_or_failed(past: Past, tmp_path: Path) -> None:
    past.run({"a": Ended(), "b": Ended("skipped"), "c": Ended("failed"), "d": Ended("xfailed")})
    assert "Cells passed, 1 run 66.7 %" in text_of(pages(site(past, tmp_path))["index.html"])


@pytest.mark.parametrize("verdict", ["cancelled", None])
def test_cells_without_evidence_do_not_count_as_passed_or_failed(
    past: Past, tmp_path: Path, verdict: str | None
) -> None:
    past.run({"a": Ended(verdict), "b": Ended("error"), "c": Ended()})
    found = pages(site(past, tmp_path))
    assert "Cells passed, 1 run 50.0 %" in text_of(found["index.html"])
    assert re.search("b failing ! error a [⊘?] .* c ✓ passed", text_of(found["projects/grid.html"]))


def test_a_failure_in_quarantine_comes_after_other_failures(past: Past, tmp_path: Path) -> None:
    past.run({"a": Ended("failed", counts=False), "b": Ended("failed"), "c": Ended()})
    found = pages(site(past, tmp_path))
    assert "b failing ✗ failed a in quarantine ⊠ failed in quarantine c ✓ passed" in text_of(
        found["projects/grid.html"]
    )
    assert "a ⊠ failed in quarantine in quarantine Cell a-id" in text_of(found["cells/grid~a-id.html"])


@pytest.mark.parametrize("verdict", ["passed", "failed"])
def test_cells_in_quarantine_are_not_in_the_pass_rate(past: Past, tmp_path: Path, verdict: str) -> None:
    past.run({"a": Ended(verdict, counts=False), "b": Ended("failed"), "c": Ended()})
    assert "Cells passed, 1 run 50.0 %" in text_of(pages(site(past, tmp_path))["index.html"])


def test_a_cell_that_failed_in_quarantine_and_has_left_it_fails_again(past: Past, tmp_path: Path) -> None:
    past.run({"a": Ended("failed", counts=False)}, days_ago=1)
    past.run({"a": Ended("failed")})
    found = pages(site(past, tmp_path))
    assert "a failing ✗ failed ⊠ failed in quarantine" in text_of(found["projects/grid.html"])


def test_a_broken_cell_in_quarantine_shows_both_states(past: Past, tmp_path: Path) -> None:
    for day in range(3):
        past.run(
            {"a": Ended("failed", "product", counts=False), "b": Ended("failed" if day == 0 else "passed")},
            days_ago=day,
        )
    found = pages(site(past, tmp_path))
    assert re.search("b failing .* a broken in quarantine", text_of(found["projects/grid.html"]))
    assert "a grid broken in quarantine" in text_of(found["index.html"])


@pytest.mark.parametrize(("nights", "may_leave"), [(CLEAN_KEYS, True), (CLEAN_KEYS - 1, False)])
def test_a_cell_that_is_clean_in_quarantine_may_leave_it(
    past: Past, tmp_path: Path, nights: int, may_leave: bool
) -> None:
    for night in range(nights):
        past.run({"a": Ended(counts=False)}, days_ago=night)
    found = pages(site(past, tmp_path))
    assert ("a in quarantine may leave quarantine" in text_of(found["projects/grid.html"])) is may_leave
    advice = "The cell may leave its quarantine: it passed in all runs of its latest 20 revisions."
    assert (advice in text_of(found["cells/grid~a-id.html"])) is may_leave


def test_a_noisy_metric_is_marked(past: Past, tmp_path: Path) -> None:
    for night in range(5):
        cells = {"a": Ended(metrics={"step_time": 1.0}, noisy=night < 2), "b": Ended(metrics={"step_time": 1.0})}
        past.run(cells, days_ago=night)
    found = pages(site(past, tmp_path))
    assert re.search(
        r"a step_time noisy in 2 of 5 runs 1\.000 s .* b step_time 1\.000 s", text_of(found["projects/grid.html"])
    )
    assert "Noisy in 2 of 5 runs: out of its range in one attempt" in text_of(found["cells/grid~a-id.html"])
    assert "oisy" not in text_of(found["cells/grid~b-id.html"])


def test_project_limits_the_site_to_one_project(past: Past, tmp_path: Path) -> None:
    for project in ("grid", "train"):
        past.run({"small": Ended(cost=1)}, project=project)
    found = pages(site(past, tmp_path, Filter(project="train")))
    assert list(found) == ["cells/train~small-id.html", "index.html", "projects/train.html"]
    assert "grid" not in text_of(found["index.html"])


def test_the_page_of_a_project_without_runs_says_so(tmp_path: Path) -> None:
    found = pages(site(nightly([1.0]), tmp_path, Filter(project="other", presets=["full"])))
    assert "The store has no runs of other with the preset full." in text_of(found["index.html"])


def test_only_runs_with_all_presets_are_shown_and_the_pages_say_so(past: Past, tmp_path: Path) -> None:
    for value, presets in enumerate((["nightly"], ["nightly", "full"], [])):
        past.run({"small": Ended(metrics={"step_time": value}, noisy=True)}, presets=presets)
    found = pages(site(past, tmp_path, Filter(presets=["nightly", "full"])))
    assert "1 project, 1 run with the presets nightly, full, as of" in text_of(found["index.html"])
    assert "1 run with the presets nightly, full, 1 cell," in text_of(found["projects/grid.html"])
    assert "step_time noisy in 1 of 1 run 1.000 s" in text_of(found["projects/grid.html"])


def test_the_presets_of_a_run_are_shown_and_a_change_between_different_presets(past: Past, tmp_path: Path) -> None:
    for day, value in enumerate(wobbling(60, after=1.2, shifted=12)):
        presets = ["full", "slow"] if day >= 48 else ["full"]
        past.run({"small": Ended(metrics={"step_time": value})}, days_ago=59 - day, presets=presets)
    found = pages(site(past, tmp_path))
    assert "r-60 with full, slow abc60" in text_of(found["projects/grid.html"])
    assert "abc48 to abc49 (presets differ)" in text_of(found["index.html"])


def test_uncommitted_changes_are_shown_with_the_revision(past: Past, tmp_path: Path) -> None:
    for revision in ("0123456789abcdef+", "0123456789abcdef", "main+"):
        past.run({"small": Ended()}, revision=revision)
    text = text_of(pages(site(past, tmp_path))["projects/grid.html"])
    assert re.findall(r"r-\d (\S+) 1", text.partition("Latest runs")[2]) == ["main+", "0123456789ab", "0123456789ab+"]


@pytest.mark.parametrize(
    ("ago", "first"),
    [
        ((0, 1), "11-21"),
        ((0, 365), "2026-11-21"),
        ((0, 0.01), "11-21 07:00"),
        ((0, -0.0001), "11-21 07:00:00"),
    ],
)
def test_the_headings_of_runs_differ(past: Past, tmp_path: Path, ago: tuple[float, ...], first: str) -> None:
    for days in ago:
        past.run({"small": Ended()}, days_ago=days)
    text = text_of(pages(site(past, tmp_path))["projects/grid.html"])
    assert f" {first} run r-1 of 2026-11-21 07:00 UTC" in text


def test_pages_stay_small_with_years_of_values(past: Past, tmp_path: Path) -> None:
    metrics = {f"metric-{number}": 0.123456789 for number in range(12)}
    for day in range(2100):
        past.run({"small": Ended(metrics=metrics)}, days_ago=day, run=f"2026-11-21_120000_nightly-{day}")
    found = pages(site(past, tmp_path))
    assert max(len(page.encode()) for page in found.values()) < LARGEST
    assert "The latest 2000 values are drawn" in text_of(found["cells/grid~small-id.html"])


def test_pages_stay_small_with_many_cells_and_each_is_linked(past: Past, tmp_path: Path) -> None:
    past.run({f"{'a name that is long ' * 4}{number:04d}": Ended(metrics={"x": 1}) for number in range(700)})
    directory = site(past, tmp_path)
    assert max(path.stat().st_size for path in directory.rglob("*.html")) < LARGEST
    cells = set((directory / "cells").iterdir())
    assert len(cells) == 700
    assert cells <= {path.resolve() for path in links(directory)}


def test_the_first_page_stays_small_with_many_projects(past: Past, tmp_path: Path) -> None:
    for number in range(300):
        for day in range(10):
            past.run({"small": Ended(cost=1)}, project=f"a-project-{number}", days_ago=day)
    page = pages(site(past, tmp_path))["index.html"]
    assert len(page.encode()) < LARGEST
    assert "300 projects, 3000 runs" in text_of(page)


def test_the_site_has_the_permissions_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        directory = site(nightly([1.0]), tmp_path)
    finally:
        os.umask(before)
    modes = {path.stat().st_mode & 0o777 for path in directory.rglob("*.html")}
    assert modes == {0o644}
    assert {path.stat().st_mode & 0o777 for path in (directory, directory / "cells")} == {0o755}


def test_an_older_site_is_replaced_whole_and_nothing_else_changes(tmp_path: Path) -> None:
    directory = site(nightly([1.0], cell="small"), tmp_path / "one")
    second = nightly([1.0], cell="large")
    with second.stored(tmp_path / "two") as connection:
        dashboard.write(connection, directory, ALL, now=NOW)
    assert [path.name for path in (directory / "cells").iterdir()] == ["grid~large-id.html"]
    assert {path.name for path in directory.parent.iterdir()} == {"store", "site"}


def test_another_directory_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").write_text("mine")
    with pytest.raises(
        UsageError, match="is not a dashboard of Topgallant: choose a directory that is empty or does not exist"
    ):
        site(Past(), tmp_path)
    assert pages(tmp_path / "site") == {"index.html": "mine"}


def test_an_empty_directory_and_a_linked_directory_are_used(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "site").symlink_to("real")
    assert site(Past(), tmp_path) == tmp_path / "real"
    assert (tmp_path / "site").is_symlink()


def half_written(directory: Path) -> None:
    """Begin to replace a site, and raise an error."""
    with site_directory.replacing(directory) as new:
        site_directory.write(new / "index.html", "half")
        raise RuntimeError("no more")


def test_a_site_that_cannot_be_finished_leaves_the_old_one(tmp_path: Path) -> None:
    directory = site(nightly([1.0]), tmp_path)
    before = pages(directory)
    with pytest.raises(RuntimeError, match="no more"):
        half_written(directory)
    assert pages(directory) == before
    assert {path.name for path in tmp_path.iterdir()} == {"store", "site"}


def test_the_attribution_of_the_latest_run_is_shown(past: Past, tmp_path: Path) -> None:
    cells = {f"model={model},batch={batch}": model == "large" for model in ("small", "large") for batch in (1, 2, 4)}
    past.run({cell: Ended("failed" if is_bad else "passed", "product") for cell, is_bad in cells.items()})
    found = pages(site(past, tmp_path))
    assert "model=large: 3 of 3 failed; elsewhere 0 of 3" in text_of(found["projects/grid.html"])
