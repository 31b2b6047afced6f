"""The same tests of the results store with SQLite and with a real PostgreSQL server."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import func, select, text

from tests.fakes.history import START, Past, Tried, identity
from tests.fakes.shards import CELLS, Shard
from tests.servers import postgres
from toolbox.ground.model.bounds import Direction, Side
from toolbox.ground.model.errors import UsageError
from toolbox.ground.model.events import CheckJudged
from toolbox.ground.model.notifications import NotificationKind, Series
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.records.results import (
    case_recording,
    earlier_results,
    earlier_times,
    notification_states,
    queries,
    recording,
    tables,
)
from toolbox.records.results.notification_states import Due
from toolbox.records.results.queries import Filter
from toolbox.records.results.records import AttemptRow, EarlierTime, MetricValue
from toolbox.records.results.store import Store, StoreError
from toolbox.records.shards import merged_run, shard_run

KINDS: Final = ("sqlite", "postgresql")
SMALL, LARGE = "model=small,batch=8", "model=large,batch=8"
FAILED = Tried(Verdict.FAILED, Cause.PRODUCT, "exit status 1", metrics={"time": 9.0})


@pytest.fixture(scope="module", params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], str]]:
    """Yield a function that returns the location of a new store."""
    if request.param == "sqlite":
        yield lambda: str(tmp_path_factory.mktemp("store") / "results.sqlite")
        return
    try:
        with postgres.Server() as server:
            yield server.database
    except postgres.ServerError as error:
        pytest.skip(str(error))


@pytest.fixture
def location(place: Callable[[], str]) -> str:
    return place()


@pytest.fixture
def store(location: str) -> Iterator[Store]:
    with Store(location) as opened:
        yield opened


def past(small: float = 1.0, days: float = 0, **fields: object) -> Past:
    cells = {SMALL: [Tried(metrics={"time": small})], LARGE: [Tried(metrics={"time": 3.0, "loss": 0.5})]}
    return replace(Past(cells, started=START + timedelta(days=days)), **fields)  # type: ignore[arg-type]  # fields of a Past


def count(store: Store) -> dict[str, int]:
    with store.reading() as connection:
        return {
            name: connection.scalar(select(func.count()).select_from(table)) or 0
            for name, table in tables.METADATA.tables.items()
        }


def test_the_migrations_create_the_declared_tables(store: Store) -> None:
    with store.reading() as connection:
        context = MigrationContext.configure(connection, opts={"compare_server_default": True})
        assert compare_metadata(context, tables.METADATA) == []


def test_a_run_is_recorded_with_all_its_data(store: Store, tmp_path: Path) -> None:
    targets = {"local": {"address": "10.0.0.1", "accelerator": "H200", "cost_per_hour": 6.0}}
    checks = [CheckJudged("", "metric", passed=True, message="fine", file="stdout.log", line=3)]
    cells = {SMALL: [Tried(metrics={"time": 1.25}, checks=checks, seconds=120)]}
    directory = past(cells=cells, targets=targets, presets=["nightly"]).write(tmp_path)
    recording.record(store, directory)
    with store.reading() as connection:
        (row,) = queries.results(connection, Filter())
        assert connection.execute(select(tables.CHECKS.c.message, tables.CHECKS.c.line)).all() == [("fine", 3)]
    assert (row.run.started, row.run.revision, row.run.presets) == (START, "a" * 40, ["nightly"])
    assert (row.run.host, row.run.directory, row.run.verdict) == ("ci-1", str(directory), "passed")
    assert (row.cell, row.name, row.labels) == (identity(SMALL), SMALL, {"model": "small", "batch": "8"})
    assert (row.accelerator, row.metrics) == ("H200", {"time": MetricValue(1.25, "s", "")})
    assert row.cost == pytest.approx(0.2)
    assert row.attempts == [AttemptRow("passed", None, "local", "H200")]
    assert (row.seconds, row.counts, row.run.unpriced) == (120, True, 0)


JUNIT = """<testsuite><testcase classname="m" name="a" time="0.5"/><testcase classname="m" name="a" time="1"/>
<testcase classname="n" name="b"><failure message="1 != 2">at n.b</failure></testcase></testsuite>"""


def test_a_run_is_compared_with_the_run_before_it(store: Store, tmp_path: Path) -> None:
    passing = JUNIT.replace('<failure message="1 != 2">at n.b</failure>', "")
    before = {SMALL: [Tried(junit=passing)], LARGE: [FAILED]}
    recording.record(store, past(cells=before, presets=["nightly"]).write(tmp_path))
    after = {SMALL: [replace(FAILED, junit=JUNIT)], LARGE: [Tried()]}
    row = recording.record(store, past(days=1, cells=after, presets=["nightly"]).write(tmp_path)).row
    with store.reading() as connection:
        comparison = earlier_results.since_last_run(connection, row, {identity(SMALL)})
    assert comparison is not None
    assert [(change.name, change.kind) for change in comparison.cells] == [
        (SMALL, "newly failing"),
        (LARGE, "newly passing"),
    ]
    assert [(change.test, str(change), change.message) for change in comparison.tests] == [
        ("n.b", "passed → failed", "1 != 2")
    ]
    assert comparison.gone == 1


def test_the_test_cases_of_a_cell_are_recorded(store: Store, tmp_path: Path) -> None:
    for days in (0, 1):
        directory = past(days=days, cells={SMALL: [replace(FAILED, junit=JUNIT)]}).write(tmp_path)
        recording.record(store, directory)
    recording.record(store, directory)
    assert {name: number for name, number in count(store).items() if name.startswith("case")} == {
        "cases": 3,
        "case_counts": 4,
        "case_results": 6,
    }
    with store.reading() as connection:
        rows = queries.results(connection, Filter())
        assert rows[0].tests == {"passed": 2, "failed": 1}
        newest = [case for case in queries.cases(connection, rows, "*") if case.result.run == rows[0].run]
        assert [(case.title, case.outcome, case.seconds, case.message, case.text) for case in newest] == [
            ("m.a", "passed", 0.5, "", ""),
            ("m.a #2", "passed", 1.0, "", ""),
            ("n.b", "failed", None, "1 != 2", "at n.b"),
        ]
        assert [case.result.run.started for case in queries.cases(connection, rows, "n.b")] == [
            START + timedelta(days=1),
            START,
        ]


def suite_of(*cases: str) -> str:
    """Return a JUnit file with these test cases. A test case whose name begins with `bad` has failed."""
    elements = [f'<testcase name="{name}">{"<failure/>" * name.startswith("bad")}</testcase>' for name in cases]
    return f"<testsuite>{''.join(elements)}</testsuite>"


def test_test_cases_with_random_names_do_not_fill_the_store(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(case_recording, "MAX_NAMES", 4)
    for days in range(5):
        junit = suite_of("steady", f"good-{days}", f"bad-{days}")
        recording.record(store, past(days=days, cells={SMALL: [replace(FAILED, junit=junit)]}).write(tmp_path))
    with store.reading() as connection:
        rows = queries.results(connection, Filter())
        assert [row.tests for row in rows] == [{"passed": 2, "failed": 1}] * 5
        names = Counter(case.name for case in queries.cases(connection, rows, "*"))
    assert names == {"steady": 5, "good-4": 1, **{f"bad-{days}": 1 for days in range(5)}}
    assert f"{SMALL} has more than 4 different test cases" in caplog.text


def test_all_test_cases_of_a_run_are_stored_however_many_there_are(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(case_recording, "MAX_NAMES", 4)
    for days in range(2):
        junit = suite_of(*map(str, range(days, 9 + days)))
        recording.record(store, past(days=days, cells={SMALL: [Tried(junit=junit)]}).write(tmp_path))
    with store.reading() as connection:
        newest, oldest = queries.results(connection, Filter())
        names = [[case.name for case in queries.cases(connection, [row], "*")] for row in (newest, oldest)]
    assert [len(each) for each in names] == [9, 8]


def test_without_the_files_the_counts_and_the_failures_are_recorded(store: Store, tmp_path: Path) -> None:
    directory = past(cells={SMALL: [replace(FAILED, junit=JUNIT)]}).write(tmp_path)
    next(directory.rglob("junit.xml")).unlink()
    recording.record(store, directory)
    with store.reading() as connection:
        (row,) = queries.results(connection, Filter())
        assert row.tests == {"passed": 2, "failed": 1}
        assert [case.title for case in queries.cases(connection, [row], "*")] == ["n.b"]


@pytest.mark.parametrize("targets", [[1], 7, {"local": "x"}, {"local": {"cost_per_hour": "x"}}])
def test_a_plan_with_wrong_targets_does_not_prevent_the_recording(
    store: Store, tmp_path: Path, targets: object
) -> None:
    directory = past().write(tmp_path)
    (directory / "plan.json").write_text(json.dumps({"targets": targets}))
    assert recording.record(store, directory).is_new


def test_a_run_that_is_recorded_again_counts_once(store: Store, tmp_path: Path) -> None:
    directory = past().write(tmp_path)
    assert recording.record(store, directory).is_new
    before = count(store)
    assert not recording.record(store, directory).is_new
    assert count(store) == before


def test_a_resumed_run_replaces_its_earlier_record(store: Store, tmp_path: Path) -> None:
    directory = past(is_over=False, cells={SMALL: [Tried(None)]}).write(tmp_path)
    recording.record(store, directory)
    shutil.rmtree(directory)
    recording.record(store, past().write(tmp_path))
    with store.reading() as connection:
        (run,) = queries.runs(connection, Filter())
    assert (run.state, run.verdict, run.cells) == ("finished", "passed", {"passed": 2})


def test_runs_with_one_name_and_different_start_times_are_distinct(store: Store, tmp_path: Path) -> None:
    for days in (0, 1):
        recording.record(store, past(days=days, run="same").write(tmp_path / str(days)))
    assert count(store)["runs"] == 2


def test_a_series_has_the_values_of_its_runs_in_the_order_of_time(store: Store, tmp_path: Path) -> None:
    for days, value in ((2, 1.3), (0, 1.1), (1, 1.2)):
        recording.record(store, past(value, days=days).write(tmp_path))
    with store.reading() as connection:
        found = queries.series(connection, Filter(cells=SMALL))
    (series,) = found
    assert series.values.tolist() == [1.1, 1.2, 1.3]
    assert [run.started for run in series.runs] == [START + timedelta(days=days) for days in (0, 1, 2)]
    assert (series.metric, series.unit, series.direction) == ("time", "s", Direction.LOWER)


SLOW = CheckJudged("", "metric", passed=False, message="", metric="time", side=Side.ABOVE, out_of_range=True)
ACCEPTED = [
    ([Tried(metrics={"time": 1.0})], 1),
    ([FAILED], 0),
    ([replace(FAILED, cause=Cause.REGRESSION, checks=[SLOW])], 1),
    ([replace(FAILED, cause=Cause.CHECK, checks=[SLOW, CheckJudged("", "files", passed=False, message="")])], 0),
    ([replace(FAILED, verdict=Verdict.ERROR, cause=Cause.INFRASTRUCTURE)], 0),
    ([FAILED, Tried(metrics={"time": 1.0})], 1),
    ([Tried(metrics={"time": None})], 0),
]


@pytest.mark.parametrize(("attempts", "values"), ACCEPTED)
def test_only_values_of_accepted_attempts_count(
    store: Store, tmp_path: Path, attempts: list[Tried], values: int
) -> None:
    recording.record(store, past(cells={SMALL: attempts}).write(tmp_path))
    with store.reading() as connection:
        assert sum(len(series.values) for series in queries.series(connection, Filter())) == values


def test_a_metric_that_was_out_of_range_in_one_attempt_only_is_noisy(store: Store, tmp_path: Path) -> None:
    attempts = [replace(FAILED, cause=Cause.REGRESSION, checks=[SLOW]), Tried(metrics={"time": 1.0, "loss": 1.0})]
    recording.record(store, past(cells={SMALL: attempts}).write(tmp_path))
    with store.reading() as connection:
        query = select(tables.SERIES.c.metric).join(tables.SAMPLES, tables.SAMPLES.c.series_id == tables.SERIES.c.id)
        assert connection.scalars(query.where(tables.SAMPLES.c.noisy)).all() == ["time"]


ALL = Filter()
FILTERS: list[tuple[Filter, int]] = [
    (Filter(), 8),
    (Filter(project="training"), 6),
    (Filter(project="none"), 0),
    (Filter(cells="model=small,*"), 3),
    (Filter(settings={"model": "small"}), 3),
    (Filter(settings={"model": "none"}), 0),
    (Filter(revision="b"), 2),
    (Filter(revision="*b"), 2),
    (Filter(presets=["nightly"]), 2),
    (Filter(since=START + timedelta(days=1)), 6),
    (Filter(until=START + timedelta(days=1)), 4),
]


@pytest.mark.parametrize(("wanted", "results"), FILTERS)
def test_a_filter_selects_matching_results(store: Store, tmp_path: Path, wanted: Filter, results: int) -> None:
    recording.record(store, past().write(tmp_path))
    recording.record(store, past(days=1, revision="b" * 40).write(tmp_path))
    recording.record(store, past(days=2, presets=["nightly", "x"]).write(tmp_path))
    recording.record(store, past(days=2, project="other", cells={"x": [Tried()], "y": [Tried()]}).write(tmp_path))
    with store.reading() as connection:
        assert len(queries.results(connection, wanted)) == results


def test_a_run_is_found_by_a_prefix_of_its_name(store: Store, tmp_path: Path) -> None:
    for days in (0, 1):
        recording.record(store, past(days=days).write(tmp_path))
    with store.reading() as connection:
        assert queries.run(connection, "20260301").started == START
        assert queries.run(connection, "latest").started == START + timedelta(days=1)
        assert queries.run(connection, "previous").started == START
        with pytest.raises(UsageError, match="matches 2 runs"):
            queries.run(connection, "2026")
        with pytest.raises(UsageError, match="the store has no run `2027`"):
            queries.run(connection, "2027")


@pytest.mark.parametrize("name", ["latest", "20260305", "20260305-020000-test"])
def test_one_run_is_found_without_reading_the_others(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for days in range(5):
        recording.record(store, past(days=days).write(tmp_path))
    rows: list[object] = []

    def count(row: object, _wanted: Filter) -> bool:
        rows.append(row)
        return True

    monkeypatch.setattr(queries, "_matches", count)
    with store.reading() as connection:
        assert queries.run(connection, name).started == START + timedelta(days=4)
    assert len(rows) == 1


def test_characters_that_a_database_refuses_are_replaced(store: Store, tmp_path: Path) -> None:
    nasty = "a\x00b\ud800c 'quoted' \u2028 ☃"
    cell = replace(FAILED, message=nasty)
    recording.record(store, past(cells={f"x={nasty}": [cell]}, message=nasty).write(tmp_path))
    with store.reading() as connection:
        (row,) = queries.results(connection, Filter())
    assert row.message == "a\ufffdb\ufffdc 'quoted' \u2028 ☃"


def test_a_cell_has_its_name_in_the_latest_run(store: Store, tmp_path: Path) -> None:
    for days, name in ((1, "x=new"), (0, "x=old")):
        directory = past(days=days, cells={name: [Tried(metrics={"time": 1.0})]}).write(tmp_path)
        for file in ("plan.json", "journal.jsonl"):  # one cell has two names, because its label was changed
            content = (directory / file).read_text().replace(identity(name), "0" * 12)
            (directory / file).write_text(content)
        recording.record(store, directory)
    with store.reading() as connection:
        assert {row.name for row in queries.results(connection, Filter())} == {"x=new"}


def test_a_directory_without_a_run_is_refused(store: Store, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not the directory of a run"):
        recording.record(store, tmp_path)
    assert count(store)["runs"] == 0


def test_a_run_outside_of_the_baseline_is_stored_and_can_be_left_out(store: Store, tmp_path: Path) -> None:
    recording.record(store, past(1.0).write(tmp_path))
    recording.record(store, past(9.0, days=1, is_baseline=False).write(tmp_path))
    with store.reading() as connection:
        assert [row.baseline for row in queries.runs(connection, ALL)] == [False, True]
        for where, values in ((ALL, [1.0, 9.0]), (Filter(baseline=True), [1.0])):
            (series,) = queries.series(connection, replace(where, cells=SMALL))
            assert series.values.tolist() == values
            assert len(queries.results(connection, where)) == 2 * len(values)


def test_a_run_outside_of_the_baseline_makes_no_cell_flaky(store: Store, tmp_path: Path) -> None:
    for days in range(20):
        cells = {SMALL: [replace(FAILED, cause=Cause.CHECK), Tried()]}
        written = past(days=days, cells=cells, revision=f"{days % 2:040x}", is_baseline=False).write(tmp_path)
        recording.record(store, written)
    with store.reading() as connection:
        assert queries.flaky_cells(connection, "training", START + timedelta(days=30)) == set()


def test_a_failed_recording_changes_nothing(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recording.record(store, past().write(tmp_path))
    before = count(store)
    monkeypatch.setattr(recording, "_value", lambda metric: {"value": metric, "fault": None})
    with pytest.raises(Exception, match=r"."):
        recording.record(store, past(days=1).write(tmp_path))
    assert count(store) == before


def test_a_store_of_a_newer_version_is_refused(store: Store, location: str) -> None:
    with store.writing() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(StoreError, match="by a newer version of Topgallant"):
        Store(location)


def test_series_without_a_value_in_the_wanted_runs_are_left_out(store: Store, tmp_path: Path) -> None:
    recording.record(store, past().write(tmp_path))
    recording.record(store, past(days=9, cells={SMALL: [FAILED]}).write(tmp_path))
    with store.reading() as connection:
        assert queries.series(connection, Filter(since=START + timedelta(days=5))) == []


def test_an_older_copy_of_a_run_replaces_nothing(store: Store, tmp_path: Path) -> None:
    recording.record(store, past().write(tmp_path / "whole"))
    torn = past().write(tmp_path / "copy")
    lines = (torn / "journal.jsonl").read_text().splitlines(keepends=True)
    (torn / "journal.jsonl").write_text("".join(lines[:6]))
    assert recording.record(store, torn).is_outdated
    with store.reading() as connection:
        (run,) = queries.runs(connection, Filter())
    assert (run.state, run.verdict, run.cells) == ("finished", "passed", {"passed": 2})


def test_unknown_settings_of_a_cell_are_added_later(store: Store, tmp_path: Path) -> None:
    first = past().write(tmp_path)
    (first / "plan.json").unlink()
    recording.record(store, first)
    recording.record(store, past(days=1).write(tmp_path))
    with store.reading() as connection:
        assert len(queries.series(connection, Filter(settings={"model": "small"}))) == 1


def test_attempts_that_share_a_target_share_its_price(store: Store, tmp_path: Path) -> None:
    targets = {"tpu": {"cost_per_hour": 36.0}, "free": {"cost_per_hour": None}}
    cells = {"x=a": [Tried(target="tpu", seconds=100)], "x=b": [Tried(target="free", seconds=100)]}
    recording.record(store, past(cells=cells, targets=targets).write(tmp_path))
    with store.reading() as connection:
        (run,) = queries.runs(connection, Filter())
    assert run.cost == pytest.approx(1.0)
    assert run.unpriced == 1


def test_an_attempt_has_the_revision_of_its_session_and_the_accelerator_of_its_target(
    store: Store, tmp_path: Path
) -> None:
    targets = {"a": {"accelerator": "A100"}, "b": {"accelerator": "H100"}}
    directory = past(cells={SMALL: [replace(FAILED, target="a"), Tried(target="b")]}, targets=targets).write(tmp_path)
    journal = directory / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    second = next(index for index, line in enumerate(lines) if '"attempt": 2' in line)
    again = lines[0].replace('"revision": ""', '"revision": "fixed"')
    journal.write_text("".join([*lines[:second], again, *lines[second:]]))
    recording.record(store, directory)
    with store.reading() as connection:
        (row,) = queries.results(connection, Filter())
    assert [(one.accelerator, one.revision) for one in row.attempts] == [("A100", ""), ("H100", "fixed")]


def test_the_value_of_the_attempt_before_a_confirmation_is_kept(store: Store, tmp_path: Path) -> None:
    out = replace(FAILED, cause=Cause.REGRESSION, checks=[SLOW], metrics={"time": 9.0})
    recording.record(store, past(cells={SMALL: [out, Tried(metrics={"time": 1.0})]}).write(tmp_path))
    with store.reading() as connection:
        (series,) = queries.series(connection, Filter())
        assert (series.values.tolist(), series.confirmed) == ([9.0], ())
        assert queries.noise(connection, Filter()) == {(identity(SMALL), "time"): (1, 1)}
        (row,) = queries.results(connection, Filter())
    assert [one.deviates for one in row.attempts] == [True, False]


def test_a_value_that_failed_its_cell_twice_is_marked_as_confirmed(store: Store, tmp_path: Path) -> None:
    out = replace(FAILED, cause=Cause.REGRESSION, checks=[SLOW], metrics={"time": 9.0, "loss": 1.0})
    recording.record(store, past(cells={SMALL: [Tried(metrics={"time": 1.0, "loss": 1.0})]}).write(tmp_path))
    recording.record(store, past(days=1, cells={SMALL: [out, out]}).write(tmp_path))
    with store.reading() as connection:
        found = {series.metric: series.confirmed for series in queries.series(connection, Filter())}
        row, _ = queries.results(connection, Filter())
    assert found == {"time": (1,), "loss": ()}
    assert row.out_of_range
    assert [(one.deviates, one.out_of_range) for one in row.attempts] == [(True, True)] * 2


def test_a_value_out_of_a_given_range_is_distinguished_from_other_failures(store: Store, tmp_path: Path) -> None:
    given = CheckJudged("", "metric", passed=False, message="", out_of_range=True)
    other = CheckJudged("", "files", passed=False, message="")
    cells = {SMALL: [replace(FAILED, checks=[given])], LARGE: [replace(FAILED, checks=[given, other])]}
    recording.record(store, past(cells=cells).write(tmp_path))
    with store.reading() as connection:
        found = {row.name: (row.out_of_range, row.attempts[0].out_of_range) for row in queries.results(connection, ALL)}
    assert found == {SMALL: (True, True), LARGE: (False, False)}


SERIES = Series("training", ("nightly",), "nightly / run")
FAILURE, RECOVERY = NotificationKind.FAILURE, NotificationKind.RECOVERY


def due(store: Store, kind: NotificationKind, hours: float = 0, seconds: float = 60) -> Due | None:
    return notification_states.begin(
        store, SERIES, "team", kind, started=START + timedelta(hours=hours), seconds=seconds
    )


def announce(store: Store, kind: NotificationKind, hours: float = 0) -> bool:
    """Return whether a message is due, and record its delivery."""
    if (message := due(store, kind, hours)) is None:
        return False
    notification_states.end(store, message, kind, f"r-{hours:g}")
    return True


def test_a_message_is_due_once_when_a_series_begins_to_fail_and_once_when_it_recovers(store: Store) -> None:
    kinds = [RECOVERY, FAILURE, FAILURE, RECOVERY, RECOVERY, FAILURE]
    assert [announce(store, kind, hour) for hour, kind in enumerate(kinds)] == [False, True, False, True, False, True]


def test_a_message_that_was_not_delivered_is_due_again(store: Store) -> None:
    for _ in range(2):
        message = due(store, FAILURE)
        assert message is not None
        notification_states.end(store, message, None, "r-0")
    assert announce(store, FAILURE)


def test_a_failure_that_was_not_announced_needs_no_recovery(store: Store) -> None:
    message = due(store, FAILURE)
    assert message is not None
    notification_states.end(store, message, None, "r-0")
    assert due(store, RECOVERY, 1) is None


def test_while_one_process_delivers_a_message_no_other_process_does(store: Store) -> None:
    assert due(store, FAILURE) is not None
    assert due(store, FAILURE, 1) is None


def test_the_message_of_a_process_that_was_killed_is_due_again_after_its_time(store: Store) -> None:
    assert due(store, FAILURE, seconds=0) is not None
    assert due(store, FAILURE, 1) is not None


def test_an_older_run_that_ends_later_announces_nothing(store: Store) -> None:
    assert announce(store, FAILURE, 2)
    assert not announce(store, RECOVERY, 1)
    assert announce(store, RECOVERY, 2), "the same run, resumed"


def test_the_recovery_names_the_run_that_failed(store: Store) -> None:
    announce(store, FAILURE, 1)
    message = due(store, RECOVERY, 2)
    assert message is not None
    assert message.earlier_run == "r-1"


def spent(store: Store, where: Filter = ALL, *, by_cell: bool = False) -> dict[str, float | None]:
    """Return the cost of each kind of attempt, or of each cell and kind."""
    with store.reading() as connection:
        found = queries.spendings(connection, where, by_cell=by_cell)
    return {f"{one.cell} {one.kind}".strip(): one.cost for one in found}


def test_the_cost_of_failures_retries_and_confirmations_is_known(store: Store, tmp_path: Path) -> None:
    targets = {"local": {"cost_per_hour": 36.0}}
    out = replace(FAILED, cause=Cause.REGRESSION, checks=[SLOW], seconds=100)
    cells = {
        SMALL: [replace(FAILED, seconds=200), Tried(seconds=300)],
        LARGE: [out, Tried(seconds=400)],
        "x=a": [Tried(seconds=500)],
    }
    recording.record(store, past(cells=cells, targets=targets).write(tmp_path))
    kinds = {"failure": 3.0, "retry": 3.0, "confirmation": 4.0, "planned": 5.0}
    assert spent(store) == pytest.approx(kinds)
    by_cell = {f"{SMALL} failure": 2.0, f"{SMALL} retry": 3.0, f"{LARGE} failure": 1.0, f"{LARGE} confirmation": 4.0}
    assert spent(store, by_cell=True) == pytest.approx({**by_cell, "x=a planned": 5.0})
    assert spent(store, Filter(cells="x=a")) == {"planned": pytest.approx(5.0)}
    assert spent(store, Filter(since=START + timedelta(days=1))) == {}


def test_an_expected_failure_is_not_counted_as_a_failure(store: Store, tmp_path: Path) -> None:
    directory = past(cells={SMALL: [replace(FAILED, seconds=100)]}, targets={"local": {"cost_per_hour": 36.0}})
    written = directory.write(tmp_path)
    journal = written / "journal.jsonl"
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    for line in lines:
        if line.get("kind") == "cell" and line.get("verdict") == "failed":
            line["verdict"] = "xfailed"
    journal.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    recording.record(store, written)
    assert spent(store) == {"planned": pytest.approx(1.0)}


def test_an_attempt_without_a_price_is_counted_and_has_no_cost(store: Store, tmp_path: Path) -> None:
    recording.record(store, past(cells={SMALL: [Tried()]}).write(tmp_path))
    with store.reading() as connection:
        (one,) = queries.spendings(connection, ALL)
    assert (one.attempts, one.unpriced, one.cost, one.project, one.currency) == (1, 1, None, "training", "USD")


def test_the_whole_time_of_a_rented_machine_is_charged(store: Store, tmp_path: Path) -> None:
    cells = {SMALL: [Tried(seconds=60)], LARGE: [Tried(seconds=60)]}
    written = past(cells=cells, targets={"local": {"cost_per_hour": 36.0, "shares_price": False}}).write(tmp_path)
    journal = written / "journal.jsonl"
    journal.write_text(journal.read_text().replace('"paid_seconds": null', '"paid_seconds": 300.0'))
    recording.record(store, written)
    with store.reading() as connection:
        (one,) = queries.spendings(connection, ALL)
    assert one.seconds == 600.0
    assert one.cost == pytest.approx(6.0)


def test_the_times_of_the_latest_runs_of_a_cell_are_known_by_target(store: Store, tmp_path: Path) -> None:
    failed = replace(FAILED, seconds=100)
    broken = Tried(Verdict.ERROR, Cause.INFRASTRUCTURE, seconds=9000)
    for day, attempts in enumerate(
        [[Tried(seconds=8000)], [failed, Tried(seconds=200)], [broken], [failed], [Tried(target="other", seconds=7)]]
    ):
        started = START + timedelta(days=100 * (day > 0), hours=day)
        recording.record(store, replace(past(cells={SMALL: attempts}), started=started).write(tmp_path))
    with store.reading() as connection:
        now = START + timedelta(days=101)
        found = earlier_times.read(connection, "training", now=now)
        assert earlier_times.read(connection, "other", now=now) == {}
    key = identity(SMALL)
    assert found == {(key, "local"): EarlierTime(200.0, 2), (key, "other"): EarlierTime(7.0, 1)}


def test_the_time_of_a_cell_is_the_mean_of_its_latest_twenty_runs(store: Store, tmp_path: Path) -> None:
    for day in range(22):
        run = past(cells={SMALL: [Tried(seconds=1000 if day < 2 else day)]}, days=day)
        recording.record(store, run.write(tmp_path))
    with store.reading() as connection:
        found = earlier_times.read(connection, "training", now=START + timedelta(days=30))
    assert found == {(identity(SMALL), "local"): EarlierTime(11.5, 20)}


def test_the_messages_of_checks_can_be_queried(store: Store, tmp_path: Path) -> None:
    checks = [CheckJudged("", "metric", passed=True, message="fine")]
    recording.record(store, past(cells={SMALL: [Tried(checks=checks)]}).write(tmp_path))
    with store.reading() as connection:
        found = queries.checks(connection, queries.results(connection, Filter()))
    assert [check["message"] for judged in found.values() for check in judged] == ["fine"]


def test_a_cell_whose_image_has_changed_is_not_flaky(store: Store, tmp_path: Path) -> None:
    """The same name may refer to another image in the next night."""
    one, other = (f"train@sha256:{digit * 64}" for digit in "01")
    good = {SMALL: [Tried(image=one)], LARGE: [Tried(image=one)]}
    bad = {SMALL: [replace(FAILED, image=other)], LARGE: [replace(FAILED, image=one)]}
    for day, cells in enumerate([good, bad, good, bad]):
        run = replace(past(days=day, cells=cells), revision=str(day // 2) * 40)
        recording.record(store, run.write(tmp_path))
    with store.reading() as connection:
        assert queries.flaky_cells(connection, "training", START + timedelta(days=9)) == {identity(LARGE)}
        assert queries.flaky_cells(connection, "training", START + timedelta(days=1)) == set()
        assert queries.flaky_cells(connection, "training", START + timedelta(days=99)) == set()


def test_an_axis_value_that_json_lacks_is_kept_as_text(store: Store, tmp_path: Path) -> None:
    directory = past().write(tmp_path)
    plan = directory / "plan.json"
    plan.write_text(plan.read_text().replace('"settings": {"model": "small"', '"settings": {"model": Infinity'))
    recording.record(store, directory)
    with store.reading() as connection:
        assert "Infinity" in str([series.settings for series in queries.series(connection, Filter())])


def test_a_reader_sees_the_store_as_of_its_first_query(store: Store, tmp_path: Path) -> None:
    directory = past().write(tmp_path)
    recording.record(store, directory)
    with store.reading() as connection:
        (run,) = queries.runs(connection, Filter())
        recording.record(store, directory)
        recording.record(store, past(days=1).write(tmp_path))
        assert all(row.attempts for row in queries.results(connection, Filter(), [run]))
        assert len(queries.runs(connection, Filter())) == 1


def test_the_database_of_another_program_is_left_alone(location: str) -> None:
    with Store(location) as store, store.writing() as connection:
        connection.execute(text("DROP TABLE alembic_version"))
    with pytest.raises(StoreError, match="is the database of another program: it has"):
        Store(location)


# Merged runs


def merged(tmp_path: Path, *directories: Path) -> Path:
    runs = shard_run.current(map(shard_run.read, directories))
    return merged_run.write(merged_run.prepare(runs, tmp_path / "merged")).directory


def names(store: Store) -> list[str]:
    with store.reading() as connection:
        return [run.run for run in queries.runs(connection, ALL)]


def cells_of(store: Store) -> list[str]:
    with store.reading() as connection:
        return sorted(row.name for row in queries.results(connection, ALL))


def test_a_merged_run_replaces_its_shards_and_no_shard_comes_back(store: Store, tmp_path: Path) -> None:
    shards = [Shard(number).write(tmp_path) for number in (1, 2, 3)]
    for shard in shards:
        recording.record(store, shard)
    whole = merged(tmp_path, *shards)
    for _ in range(2):
        recording.record(store, whole)
        assert {recording.record(store, shard).merged_into for shard in shards} == {whole.name}
        assert names(store) == [whole.name]
        assert cells_of(store) == sorted(CELLS)


def test_of_merged_runs_with_a_common_shard_the_store_keeps_the_later_one(store: Store, tmp_path: Path) -> None:
    one, two, three, again = (
        Shard(number, later=later).write(tmp_path) for number, later in ((1, 0), (2, 0), (3, 0), (1, 9))
    )
    early, late = merged(tmp_path, one, two, three), merged(tmp_path, one, two, three, again)
    assert early != late
    for directory in (early, late, early):
        recording.record(store, directory)
    recording.record(store, one)  # another execution of its cells, which the later merged run does not contain
    assert sorted(names(store)) == sorted([late.name, one.name])
