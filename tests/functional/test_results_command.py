"""The `results` commands print the contents of the store, for people and for programs."""

from __future__ import annotations

import calendar
import csv
import json
import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.history import START, Past, Tried
from toolbox.ground.model.bounds import Side
from toolbox.ground.model.events import CheckJudged
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.testing import Outcome, Workspace

SMALL, LARGE = "model=small,batch=8", "model=large,batch=8"
TARGETS = {"local": {"address": None, "accelerator": "H200", "cost_per_hour": 36.0}}

Results = Callable[..., Outcome]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a workspace with a store of forty nightly runs. One cell is slower in the last twenty."""
    workspace = Workspace(tmp_path_factory.mktemp("history") / "workspace")
    for day in range(40):
        wobble = 0.001 * (day % 7)
        cells = {
            SMALL: [Tried(metrics={"time": 1.0 + wobble})],
            LARGE: [Tried(metrics={"time": (3.0 if day < 20 else 3.6) + wobble})],
        }
        if day % 4 == 3:
            cells[SMALL] = [Tried(Verdict.FAILED, Cause.PRODUCT, "exit status 1", target="local"), *cells[SMALL]]
        moment = START + timedelta(days=day)
        Past(cells, started=moment, revision=f"{day:040x}", targets=TARGETS).write(workspace.directory / "runs")
    workspace.write({"projects/training/orchestration.py": '"""Trains."""\n', "config/training.yaml": "a: 1\n"})
    runs = sorted(map(str, (workspace.directory / "runs/training").iterdir()))
    imported = workspace.run("results", "import", *runs)
    assert imported.exit_code == 0, str(imported)
    return workspace.directory


@pytest.fixture
def results(workspace: Workspace, history: Path) -> Results:
    """Return a function that runs a `results` command on a copy of the history."""
    shutil.copytree(history, workspace.directory, dirs_exist_ok=True)
    return lambda *argv, **options: workspace.run("results", *argv, **options)


def loaded(outcome: Outcome) -> Any:
    assert outcome.exit_code == 0, str(outcome)
    return json.loads(outcome.stdout)


def test_runs_are_listed_the_newest_first(results: Results) -> None:
    found = loaded(results("list", "--limit=2", "--format=json"))
    assert [row["run"] for row in found] == ["20260409-020000-test", "20260408-020000-test"]
    assert (found[0]["verdict"], found[0]["cells"], found[0]["currency"]) == ("passed", {"passed": 2}, "USD")
    assert "20260409-020000-test" in results("list").stdout


def test_values_are_listed_as_csv(results: Results) -> None:
    outcome = results("list", "--metric=time", "--settings={model: large}", "--since=2026-04-08", "--format=csv")
    rows = list(csv.DictReader(outcome.stdout.splitlines()))
    assert [(row["cell"], row["metric"], row["unit"]) for row in rows] == [(LARGE, "time", "s")] * 2
    assert float(rows[0]["value"]) == pytest.approx(3.604)


def test_until_includes_the_whole_day(results: Results) -> None:
    assert len(loaded(results("list", "--since=2026-04-08", "--until=2026-04-08", "--format=json"))) == 1


def test_a_metric_without_a_value_is_shown_with_its_latest_value_and_the_reason(
    results: Results, workspace: Workspace
) -> None:
    unknown = {SMALL: [Tried(metrics={"time": None})], LARGE: [Tried(metrics={"time": 3.6})]}
    directory = Past(unknown, started=START + timedelta(days=50)).write(workspace.directory / "runs")
    workspace.run("results", "import", str(directory))
    found = {row["cell"]: row["lost_metrics"] for row in loaded(results("show", "latest", "--format=json"))}
    lost = {"metric": "time", "unit": "s", "before": 1.004, "reason": "no such file"}
    assert found == {SMALL: [lost], LARGE: []}
    assert f"{SMALL}: time: 1.004 s → unknown: no such file" in results("show", "latest").stdout


def test_a_metric_that_was_never_known_is_shown_with_the_reason(results: Results, workspace: Workspace) -> None:
    directory = Past({SMALL: [Tried(metrics={"loss": None})]}, started=START + timedelta(days=50)).write(
        workspace.directory / "runs"
    )
    workspace.run("results", "import", str(directory))
    (row,) = loaded(results("show", "latest", "--format=json"))
    assert row["metrics"] == {"loss": {"value": None, "unit": "s", "reason": "no such file"}}
    assert "loss: unknown: no such file" in results("show", "latest").stdout


def test_a_run_is_shown_with_its_cells(results: Results) -> None:
    found = loaded(results("show", "20260304", "--format=json"))
    assert {row["cell"]: row["attempts"] for row in found} == {SMALL: 2, LARGE: 1}
    text = results("show", "20260304").stdout
    assert "training 20260304-020000-test: passed" in text
    assert "time 1.003 s" in text
    (first, _) = csv.DictReader(results("show", "20260304", "--format=csv").stdout.splitlines())
    assert float(first["time (s)"]) == pytest.approx(1.003)


def test_two_periods_are_compared(results: Results) -> None:
    found = loaded(results("compare", "..2026-03-20", "2026-03-21..2026-04-30", "--format=json"))
    assert {row["cell"]: row["change"] for row in found} == {SMALL: "same", LARGE: "worse"}
    slower = next(row for row in found if row["cell"] == LARGE)
    assert (slower["samples_before"], slower["samples_after"], slower["percent"]) == (
        20,
        20,
        pytest.approx(20, abs=0.1),
    )


def test_two_runs_are_compared(results: Results) -> None:
    found = loaded(results("compare", "20260315", "latest", "--format=json"))
    assert {row["cell"]: row["change"] for row in found} == {SMALL: "same", LARGE: "worse"}
    assert {row["change"] for row in loaded(results("compare", "20260301", "latest", "--format=json"))} == {"unsure"}


def test_a_comparison_shows_a_summary_and_changed_metrics(results: Results) -> None:
    outcome = results("compare", "20260315", "latest")
    assert outcome.stdout.startswith("1 worse, 1 same, of 2 metrics\n")
    assert (LARGE in outcome.stdout, SMALL in outcome.stdout) == (True, False)
    assert SMALL in results("compare", "20260315", "latest", "--all").stdout
    assert results("compare", "20260315", "20260316").stdout == "2 same, of 2 metrics\n"


def test_a_metric_of_a_failed_cell_is_not_measured(results: Results, workspace: Workspace) -> None:
    cells = {SMALL: [Tried(Verdict.FAILED, Cause.PRODUCT)], LARGE: [Tried(metrics={"time": 3.6})]}
    directory = Past(cells, started=START + timedelta(days=40)).write(workspace.directory / "runs")
    results("import", str(directory))
    found = loaded(results("compare", "previous", "latest", "--format=json"))
    assert {row["cell"]: row["change"] for row in found} == {SMALL: "not measured", LARGE: "same"}


def test_revisions_are_compared(results: Results) -> None:
    found = loaded(results("compare", f"{14:040x}", "previous", "--format=json"))
    assert {row["cell"]: row["change"] for row in found} == {SMALL: "same", LARGE: "worse"}


def test_a_metric_without_earlier_values_is_new(results: Results) -> None:
    found = loaded(results("compare", "2025-01-01..2025-01-31", "latest", "--format=json"))
    assert {row["change"] for row in found} == {"new"}


def test_a_shift_is_reported_with_the_revisions_around_it(results: Results) -> None:
    (found,) = loaded(results("changes", "--format=json"))
    assert (found["cell"], found["state"], found["change"]) == (LARGE, "confirmed", "worse")
    assert (found["revision_before"], found["revision_after"]) == (f"{19:040x}", f"{20:040x}")
    assert loaded(results("changes", "--since=2026-04-01", "--format=json")) == []


def test_bounds_are_written_with_a_table_of_what_changed(results: Results, workspace: Workspace) -> None:
    outcome = results("update_bounds", "training")
    assert outcome.exit_code == 0, str(outcome)
    assert "2 of 2 bounds changed in" in outcome.stdout
    text = (workspace.directory / "config/bounds/training.yaml").read_text()
    assert LARGE in text
    again = results("update_bounds", "training")
    assert "0 of 2 bounds changed in" in again.stdout
    assert (workspace.directory / "config/bounds/training.yaml").read_text() == text


def test_update_bounds_with_dry_run_writes_nothing(results: Results, workspace: Workspace) -> None:
    assert "2 of 2 bounds would change" in results("update_bounds", "training", "--dry_run").stdout
    assert not (workspace.directory / "config/bounds").exists()


def test_manual_bounds_are_kept(results: Results, workspace: Workspace) -> None:
    results("update_bounds", "training")
    file = workspace.directory / "config/bounds/training.yaml"
    manual = file.with_name("training.manual.yaml")
    text, head = file.read_text(), f"  {SMALL}:\n"
    file.write_text(text.replace(head, f"  # promised to a customer\n{head}"))
    outcome = results("update_bounds", "training")
    assert outcome.exit_code == 2
    assert "move your own bounds and comments to training.manual.yaml" in outcome.stderr
    manual.write_text(f"cells:\n{head}{text.partition(head)[2]}")
    file.write_text(text)
    rows = {row["cell"]: row["why"] for row in loaded(results("update_bounds", "training", "--format=json"))}
    assert rows[SMALL] == "manual bounds are never changed"
    assert file.read_text() == text


def test_series_with_few_values_have_no_bounds(results: Results) -> None:
    outcome = results("update_bounds", "training", "--since=2026-04-06")
    assert "2 series have too few accepted values for bounds" in outcome.stdout


def test_flaky_and_healthy_cells_are_distinguished(results: Results) -> None:
    found = {row["cell"]: row for row in loaded(results("flaky", "--format=json"))}
    assert (found[SMALL]["state"], found[SMALL]["events"], found[LARGE]["state"]) == ("flaky", 10, "healthy")
    assert "1 other cells are healthy" in results("flaky").stdout


def test_a_cell_that_only_became_slower_is_not_broken(workspace: Workspace) -> None:
    slow = CheckJudged("", "metric", passed=False, message="", out_of_range=True)
    cells = {
        SMALL: [Tried(Verdict.FAILED, Cause.CHECK, checks=[slow])],
        LARGE: [Tried(Verdict.FAILED, Cause.PRODUCT)],
    }
    for day in range(3):
        Past(cells, started=START + timedelta(days=day)).write(workspace.directory / "runs")
    workspace.run("results", "import", *sorted(map(str, (workspace.directory / "runs/training").iterdir())))
    found = {row["cell"]: row["state"] for row in loaded(workspace.run("results", "flaky", "--format=json"))}
    assert found == {SMALL: "out of range", LARGE: "broken"}


def test_values_near_the_largest_float_are_handled(workspace: Workspace) -> None:
    for day in range(14):
        values = {SMALL: 1.5e300 if day % 3 else -1.7e308, LARGE: 1.0 + 0.01 * (day % 3)}
        cells = {cell: [Tried(metrics={"time": value})] for cell, value in values.items()}
        Past(cells, started=START + timedelta(days=day)).write(workspace.directory / "runs")
    workspace.write({"projects/training/orchestration.py": '"""Trains."""\n', "config/training.yaml": "a: 1\n"})
    workspace.run("results", "import", *sorted(map(str, (workspace.directory / "runs/training").iterdir())))
    for command in (
        ["list", "--metric=time"],
        ["show"],
        ["compare", "previous", "latest"],
        ["compare", "..2026-03-06", "2026-03-07..2026-04-01"],
        ["changes"],
        ["flaky"],
        ["update_bounds", "training"],
    ):
        outcome = workspace.run("results", *command, "--format=json")
        assert isinstance(loaded(outcome), list)
        assert "Warning" not in outcome.stderr, str(outcome)
    assert workspace.run("results", "dashboard").exit_code == 0


def test_costs_are_summed_by_month_and_compared_with_the_month_before(results: Results) -> None:
    found = loaded(results("cost", "--by=month", "--format=json"))
    assert [(row["month"], row["runs"]) for row in found] == [("2026-04", 9), ("2026-03", 31)]
    attempts = 9 * 2 + 3  # two cells per run, and three runs with a second attempt
    each = 60 * 36 / 3600
    assert found[0]["cost"] == pytest.approx(attempts * each)
    assert (found[0]["failures"], found[0]["retries"]) == (pytest.approx(3 * each), pytest.approx(3 * each))
    assert found[0]["previous"] == pytest.approx(found[1]["cost"])
    assert (found[0]["forecast"], found[1]["previous"]) == (None, 0.0)


def test_costs_are_summed_by_several_groups(results: Results) -> None:
    outcome = results("cost", "--by=cell,accelerator", "--until=2026-03-01", "--format=csv")
    assert outcome.exit_code == 0, str(outcome)
    rows = list(csv.DictReader(outcome.stdout.splitlines()))
    assert {(row["cell"], row["accelerator"]) for row in rows} == {(SMALL, "H200"), (LARGE, "H200")}
    assert [float(row["cost"]) for row in rows] == pytest.approx([0.6, 0.6])
    by_target = loaded(results("cost", "--by=target", f"--cells={SMALL}", "--format=json"))
    assert [(row["target"], row["attempts"], row["unpriced"]) for row in by_target] == [("local", 50, 0)]


def test_costs_are_printed_by_day_and_project_with_a_forecast_of_the_month(workspace: Workspace) -> None:
    now = datetime.now(UTC)
    for days in range(40):
        started = now - timedelta(days=days, minutes=1)
        past = Past({SMALL: [Tried(seconds=3600)]}, started=started, revision=f"{days:040x}", targets=TARGETS)
        past.write(workspace.directory / "runs")
    runs = sorted(map(str, (workspace.directory / "runs/training").iterdir()))
    assert workspace.run("results", "import", *runs).exit_code == 0
    outcome = workspace.run("results", "cost")
    assert outcome.exit_code == 0, str(outcome)
    assert re.search(r"^day +project +cost +currency", outcome.stdout), str(outcome)
    assert f"{now:%Y-%m} so far: " in outcome.stdout
    assert "forecast for the whole month: " in outcome.stdout
    (month, *_) = loaded(workspace.run("results", "cost", "--by=month,project", "--format=json"))
    # A run each day costs 36 USD. The window of the forecast may begin or end within a day.
    days_of_month = calendar.monthrange(now.year, now.month)[1]
    assert month["forecast"] == pytest.approx(36 * days_of_month, abs=72)


def test_changes_are_found_in_a_csv_file(workspace: Workspace) -> None:
    values = [*([10.0, 10.1, 9.9, 10.05] * 8), *([12.0, 12.1, 11.9, 12.05] * 8)]
    text = "when,value\n" + "".join(f"{index},{value}\n" for index, value in enumerate(values))
    workspace.write({"a.csv": text, "many/b.csv": text, "many/c.csv": "value\n1\n"})
    (change,) = loaded(workspace.run("results", "changes", "--csv=a.csv", "--format=json"))["changes"]
    assert set(change) == {"index", "state", "before", "after", "ratio", "p_value"}
    assert (change["index"], change["state"]) == (32, "confirmed")
    found = loaded(workspace.run("results", "changes", "--csv=many", "--column=value", "--format=json"))
    assert {name: len(one["changes"]) for name, one in found["series"].items()} == {"b": 1, "c": 0}


def test_a_changed_level_is_refused_until_a_person_accepts_it(results: Results, workspace: Workspace) -> None:
    file = workspace.directory / "config/bounds/training.yaml"
    results("update_bounds", "training", "--until=2026-03-20")
    before = file.read_text()
    assert "minimum_detectable_change: " in before
    rows = {row["cell"]: row for row in loaded(results("update_bounds", "training", "--format=json"))}
    assert {cell: row["action"] for cell, row in rows.items()} == {SMALL: "written", LARGE: "refused"}
    hint = f"--accept={LARGE}:time"
    assert rows[LARGE]["why"] == f"the level has changed since 20260321-020000-test: accept with {hint} --reason=WHY"
    assert "1 bounds were refused, and did not change" in results("update_bounds", "training").stdout
    outcome = results("update_bounds", "training", hint, "--reason=TPG-9: the driver is slower")
    assert "1 of these bounds follow a change for the worse: was this change intended?" in outcome.stdout
    text = file.read_text()
    assert 'accepted_reason: "TPG-9: the driver is slower"' in text
    assert "accepted_since: 2026-03-21T02:00:00+00:00" in text
    assert "0 of 2 bounds changed" in results("update_bounds", "training").stdout
    assert file.read_text() == text


def test_confirmed_failures_do_not_change_bounds(results: Results, workspace: Workspace) -> None:
    file = workspace.directory / "config/bounds/training.yaml"
    results("update_bounds", "training", "--cells=*small*")
    before = file.read_text()
    out = CheckJudged("", "metric", passed=False, message="", metric="time", side=Side.ABOVE, out_of_range=True)
    slow = Tried(Verdict.FAILED, Cause.REGRESSION, metrics={"time": 1.09}, checks=[out])
    moment = START + timedelta(days=40)
    directory = Past({SMALL: [slow, slow]}, started=moment).write(workspace.directory / "runs")
    results("import", str(directory))
    outcome = results("update_bounds", "training", "--cells=*small*")
    assert "the level has changed since 20260410-020000-test" in " ".join(outcome.stdout.split())
    assert file.read_text() == before


def test_runs_outside_of_the_baseline_are_compared_but_change_nothing(results: Results, workspace: Workspace) -> None:
    file = workspace.directory / "config/bounds/training.yaml"
    argv = ("update_bounds", "training", "--cells=*small*", "--format=json")
    (before,) = loaded(results(*argv))
    bounds, changes = file.read_text(), loaded(results("changes", "--format=json"))
    runs = []
    for number in range(20):
        moment = START + timedelta(days=40, hours=number)
        cells = {SMALL: [Tried(metrics={"time": 2.0 + 0.001 * (number % 7)})]}
        past = Past(cells, started=moment, revision="c" * 40, presets=["on_demand"], is_baseline=False)
        runs.append(str(past.write(workspace.directory / "runs")))
    assert results("import", *runs).exit_code == 0
    (after,) = loaded(results(*argv))
    assert (after["mean"], after["samples"], after["action"]) == (before["mean"], before["samples"], "kept")
    assert file.read_text() == bounds
    assert "20 runs outside of the baseline: not used" in results("update_bounds", "training").stdout
    assert loaded(results("changes", "--format=json")) == changes
    (compared,) = loaded(results("compare", "20260409", "latest", "--cells=*small*", "--format=json"))
    assert compared["change"] == "worse"
    assert loaded(results("list", "--limit=1", "--format=json"))[0]["baseline"] is False


def test_impossible_acceptances_are_reported(results: Results, workspace: Workspace) -> None:
    mistakes = {
        ("--accept=*:time",): "needs a --reason of one line",
        ("--accept=time", "--reason=x"): "write two patterns, CELLS:METRICS",
        ("--accept=*:tim", "--reason=x"): "metrics are written CELL:METRIC, for example model=",
        ("--accept=model=small*:time", "--reason=x"): "none of them has a changed level",
        ("--reason=x",): "--reason needs --accept=CELLS:METRICS",
    }
    for argv, message in mistakes.items():
        outcome = results("update_bounds", "training", *argv)
        assert (outcome.exit_code, message in outcome.stderr) == (2, True), str(outcome)
    assert not (workspace.directory / "config/bounds").exists()


def test_unknown_projects_metrics_and_stores_are_named(results: Results) -> None:
    mistakes = {
        ("list", "--project=trainin"): "has no run of the project `trainin`: did you mean training?",
        ("changes", "--metric=tim"): "no metric matches --metric=tim; did you mean time?",
        ("list", "--database=no/such.sqlite"): "the store no/such.sqlite does not exist",
        ("list", "--limit=-1"): "--limit must be a number above 0, not -1",
        ("changes", "--csv=x", "--project=training"): "with --csv, only --column and --format are allowed",
        (
            "update_bounds",
            "training",
            "--method=manual",
        ): "--method must be one of prediction, torchprime, ratio, not 'manual'",
        ("cost", "--by=week"): "one of day, month, project, target, cell, accelerator",
    }
    for argv, message in mistakes.items():
        outcome = results(*argv)
        assert (outcome.exit_code, message in outcome.stderr) == (2, True), str(outcome)


def test_import_uses_the_store_of_the_project(workspace: Workspace) -> None:
    workspace.write(
        {
            "projects/training/orchestration.py": '"""Trains."""\n',
            "config/training.yaml": "results: {database: team.sqlite}\n",
        }
    )
    directory = Past({SMALL: [Tried()]}).write(workspace.directory / "runs")
    assert "team.sqlite" in workspace.run("results", "import", str(directory)).stdout
    assert (workspace.directory / "team.sqlite").exists()
    assert len(loaded(workspace.run("results", "list", "--project=training", "--format=json"))) == 1


def test_show_reports_what_failed_cells_have_in_common(workspace: Workspace) -> None:
    cells = {f"model={model},batch={batch}": [Tried()] for model in ("small", "large") for batch in (1, 2, 4)}
    cells |= {cell: [Tried(Verdict.FAILED, Cause.PRODUCT)] for cell in cells if "large" in cell}
    directory = Past(cells, project="other").write(workspace.directory / "runs")
    workspace.run("results", "import", str(directory))
    assert "failed cells have in common: model=large: 3 of 3 failed" in workspace.run("results", "show").stdout


def test_a_cell_that_fails_at_random_is_not_part_of_what_failed_cells_have_in_common(workspace: Workspace) -> None:
    cells = {f"model={model},batch={batch}": [Tried()] for model in ("small", "large") for batch in (1, 2, 4)}
    bad = {cell: [Tried(Verdict.FAILED, Cause.PRODUCT)] for cell in cells if "large" in cell}
    at_random = {"model=small,batch=1": [Tried(Verdict.FAILED, Cause.PRODUCT)]}
    for day, failed in enumerate([at_random, {}, at_random, {}, bad | at_random]):
        past = Past(cells | failed, "other", started=START + timedelta(days=day), revision=str(day // 2) * 40)
        workspace.run("results", "import", str(past.write(workspace.directory / "runs")))
    assert "failed cells have in common: model=large: 3 of 3 failed" in workspace.run("results", "show").stdout


MISTAKES = [
    (["list", "--since=banana"], "--since=banana is not a time"),
    (["list", "--since=now", "--until=2026-01-01"], "ends before it begins"),
    (["show", "2027"], "the store has no run `2027`"),
    (["compare", "2026-05-01..2026-04-01", "latest"], "the period ends before it begins"),
    (["update_bounds", "trainin"], "did you mean training"),
    (
        ["update_bounds", "training", "--confidence=99.9"],
        "--confidence must be above 0.5 and below 1, such as 0.999, not 99.9",
    ),
    (["changes", "--csv=no.csv"], "--csv=no.csv: No such file"),
    (["list", "--database=mysql://x/y"], "mysql is not supported"),
    (["import"], "--run_dirs is missing"),
    (["import", "."], "is not the directory of a run"),
    (["report", "."], "is not the directory of a run"),
]


@pytest.mark.parametrize(("argv", "message"), MISTAKES)
def test_mistakes_are_reported_in_a_few_lines(workspace: Workspace, argv: list[str], message: str) -> None:
    workspace.write({"projects/training/orchestration.py": '"""Trains."""\n', "config/training.yaml": "a: 1\n"})
    outcome = workspace.run("results", *argv)
    assert outcome.exit_code == 2, str(outcome)
    assert message in outcome.stderr
    assert len(outcome.stderr.splitlines()) <= 5


def test_an_empty_store_is_reported(workspace: Workspace) -> None:
    outcome = workspace.run("results", "list")
    assert "has no matching results" in outcome.stdout
    assert loaded(workspace.run("results", "list", "--format=json")) == []


def test_a_csv_value_that_is_not_a_number_is_named_with_its_line(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("value\n1\nfast\n")
    outcome = workspace.run("results", "changes", f"--csv={tmp_path / 'bad.csv'}")
    assert "bad.csv:3: 'fast' is not a finite number" in outcome.stderr


@pytest.mark.parametrize("gap", ["", " ", "nan", "NaN"])
def test_a_csv_row_without_a_value_is_a_gap(workspace: Workspace, gap: str) -> None:
    rows = ["when,value", f"0,{gap}", *(f"{row},{1 + row // 20}" for row in range(1, 40))]
    workspace.write({"a.csv": "\n".join(rows)})
    (change,) = loaded(workspace.run("results", "changes", "--csv=a.csv", "--format=json"))["changes"]
    assert (change["index"], change["before"], change["after"]) == (20, 1, 2)


def test_a_csv_column_of_gaps_is_refused(workspace: Workspace) -> None:
    workspace.write({"a.csv": "when,value\n1,nan\n2,\n"})
    outcome = workspace.run("results", "changes", "--csv=a.csv")
    assert (outcome.exit_code, "a.csv has no number in this column" in outcome.stderr) == (2, True)


def test_the_test_cases_of_runs_are_listed(results: Results, workspace: Workspace) -> None:
    junit = """<testsuite><testcase classname="m" name="fast" time="0.5"/><testcase classname="m" name="slow" time="9"/>
    <testcase classname="m" name="bad" time="1"><failure message="1 != 2"/></testcase></testsuite>"""
    cells = {SMALL: [Tried(Verdict.FAILED, Cause.CHECK, "1 of 3 tests did not pass", junit=junit)]}
    run = Past(cells, started=START + timedelta(days=50)).write(workspace.directory / "runs")
    assert workspace.run("results", "import", str(run)).exit_code == 0
    rows = loaded(results("show", "--tests", "--format=json"))
    assert [(row["test"], row["outcome"], row["message"]) for row in rows] == [
        ("m.bad", "failed", "1 != 2"),
        ("m.slow", "passed", ""),
        ("m.fast", "passed", ""),
    ]
    assert loaded(results("show", "--format=json"))[0]["tests"] == {"passed": 2, "failed": 1}
    (row,) = loaded(results("list", "--tests=*.slow", "--format=json"))
    assert (row["run"], row["seconds"]) == (run.name, 9.0)
