"""A run is compared with the latest earlier result of each of its cells."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.history import START, Past, Tried, identity
from toolbox.ground.model.cases import FAIL_ON, CaseOutcome
from toolbox.ground.model.verdicts import UNEXPECTED, Cause, Verdict
from toolbox.records.results import earlier_results, recording, since_last_run
from toolbox.records.results.since_last_run import Kind, SinceLastRun, VerdictChange, change_of_cell, change_of_test
from toolbox.records.results.store import Store
from toolbox.records.runs.layout import RunDirectory

PASSED, FAILED = Tried(), Tried(Verdict.FAILED, Cause.PRODUCT)
ERROR = Tried(Verdict.ERROR, Cause.INFRASTRUCTURE)
ENDED = (Verdict.PASSED, Verdict.XFAILED, *UNEXPECTED)


class Nightly:
    """A store with one run per day. `run` records the next run, and returns its comparison."""

    def __init__(self, store: Store, directory: Path) -> None:
        self.store = store
        self.directory = directory
        self.days = 0

    def run(self, cells: Mapping[str, Tried], *, planned: Sequence[str] = (), **fields: Any) -> SinceLastRun | None:
        return self.compare(self.record(cells, **fields), planned)

    def record(self, cells: Mapping[str, Tried], *, day: int | None = None, **fields: Any) -> int:
        """Record a run, and return the id of its row."""
        started = START + timedelta(days=self.days if day is None else day)
        self.days += 1
        attempts = {cell: [tried] for cell, tried in cells.items()}
        directory = Past(attempts, started=started, run=f"r{self.days}", **fields).write(self.directory)
        return recording.record(self.store, directory).row

    def compare(self, row: int, planned: Sequence[str] = ()) -> SinceLastRun | None:
        with self.store.reading() as connection:
            cells = [identity(cell) for cell in planned]
            return earlier_results.since_last_run(connection, row, cells or None)


@pytest.fixture
def nightly(tmp_path: Path) -> Iterator[Nightly]:
    with Store(str(tmp_path / "store.db")) as store:
        yield Nightly(store, tmp_path / "runs")


def changes(comparison: SinceLastRun | None) -> list[tuple[str, str, str]]:
    """Return the name of the cell with its test case, the kind and the earlier run of each change."""
    assert comparison is not None
    listed = [*comparison.cells, *comparison.tests]
    return [(f"{change.name} {change.test}".strip(), str(change.kind), change.run) for change in listed]


def suite(**outcomes: bool) -> str:
    """Return a JUnit file with test cases that passed or failed."""
    inner = {True: "", False: "<failure message='why'/>"}
    cases = "".join(
        f"<testcase classname='n' name='{name}'>{inner[passed]}</testcase>" for name, passed in outcomes.items()
    )
    return f"<testsuite name='s'>{cases}</testsuite>"


def test_cells_that_newly_fail_and_newly_pass_are_listed(nightly: Nightly) -> None:
    nightly.run({"x=a": PASSED, "x=b": FAILED, "x=c": FAILED, "x=d": PASSED})
    comparison = nightly.run({"x=a": FAILED, "x=b": PASSED, "x=c": FAILED, "x=d": PASSED})
    assert changes(comparison) == [("x=a", "newly failing", "r1"), ("x=b", "newly passing", "r1")]
    assert comparison is not None
    assert str(comparison.cells[0]) == "passed → failed (product)"
    assert comparison.earlier == "the run r1 of 2026-03-01 02:00 UTC"
    assert comparison.tally == "1 cell newly failing; 1 cell newly passing"
    assert (comparison.compared, comparison.new, comparison.gone) == (4, 0, None)


def test_the_first_run_is_not_compared(nightly: Nightly) -> None:
    assert nightly.run({"x=a": FAILED}) is None


def test_an_old_run_is_compared_with_the_run_before_it(nightly: Nightly) -> None:
    nightly.run({"x=a": PASSED})
    row = nightly.record({"x=a": FAILED})
    nightly.run({"x=a": FAILED})
    assert changes(nightly.compare(row)) == [("x=a", "newly failing", "r1")]


def test_each_cell_is_compared_with_the_newest_run_that_executed_it(nightly: Nightly) -> None:
    nightly.run({"x=a": PASSED, "x=b": PASSED})
    nightly.run({"x=a": FAILED})
    nightly.run({"x=a": Tried(Verdict.SKIPPED), "x=b": Tried(Verdict.CANCELLED, Cause.INTERRUPTED)})
    nightly.run({"x=a": Tried(verdict=None), "x=b": Tried(verdict=None)}, is_over=False)
    comparison = nightly.run({"x=a": PASSED, "x=b": FAILED})
    assert changes(comparison) == [("x=b", "newly failing", "r1"), ("x=a", "newly passing", "r2")]
    assert comparison is not None
    assert comparison.earlier == "the run r2 of 2026-03-02 02:00 UTC and earlier runs"


def test_a_cell_that_ended_in_an_aborted_run_has_a_result(nightly: Nightly) -> None:
    nightly.run({"x=a": FAILED, "x=b": Tried(verdict=None)}, is_over=False)
    assert changes(nightly.run({"x=a": PASSED, "x=b": PASSED})) == [("x=a", "newly passing", "r1")]


def test_a_failure_with_another_cause_is_listed(nightly: Nightly) -> None:
    nightly.run({"x=a": ERROR, "x=b": FAILED})
    comparison = nightly.run({"x=a": FAILED, "x=b": FAILED})
    assert changes(comparison) == [("x=a", "failing for another cause", "r1")]
    assert comparison is not None
    assert str(comparison.cells[0]) == "error (infrastructure) → failed (product)"


@pytest.mark.parametrize(
    "fields", [{"presets": ["smoke"]}, {"presets": ["nightly", "smoke"]}, {"is_baseline": False}, {"project": "other"}]
)
def test_other_presets_pull_requests_and_projects_are_not_compared(nightly: Nightly, fields: dict[str, Any]) -> None:
    nightly.run({"x=a": PASSED}, presets=["nightly"])
    nightly.run({"x=a": FAILED}, **{"presets": ["nightly"], **fields})
    assert changes(nightly.run({"x=a": PASSED}, presets=["nightly"])) == []


def test_a_pull_request_is_compared_with_the_baseline(nightly: Nightly) -> None:
    nightly.run({"x=a": PASSED})
    nightly.run({"x=a": FAILED}, is_baseline=False)
    assert changes(nightly.run({"x=a": FAILED}, is_baseline=False)) == [("x=a", "newly failing", "r1")]


def test_new_cells_and_cells_that_are_gone_are_counted(nightly: Nightly) -> None:
    nightly.run({"x=a": PASSED, "x=b": FAILED, "x=c": PASSED})
    comparison = nightly.run({"x=a": PASSED, "x=d": FAILED}, planned=["x=a", "x=d", "x=c"])
    assert comparison is not None
    assert (comparison.new, comparison.gone, comparison.has_changes) == (1, 1, False)
    assert comparison.tally == "1 cell without an earlier result; 1 cell not in the matrix any more"


def test_a_test_that_newly_fails_in_a_cell_that_failed_before_is_listed(nightly: Nightly) -> None:
    def tried(**outcomes: bool) -> Tried:
        return Tried(Verdict.FAILED, Cause.CHECK, junit=suite(**outcomes))

    nightly.run({"x=a": tried(one=False, two=True, three=False, four=True)})
    comparison = nightly.run({"x=a": tried(one=False, two=False, three=True, four=True, new=False)})
    assert changes(comparison) == [("x=a n.two", "newly failing", "r1"), ("x=a n.three", "newly passing", "r1")]
    assert comparison is not None
    assert comparison.tests[0].message == "why"
    assert comparison.tally == "1 test newly failing; 1 test newly passing"


def test_tests_are_compared_with_the_run_of_their_cell(nightly: Nightly) -> None:
    good, bad = Tried(junit=suite(one=True)), Tried(Verdict.FAILED, Cause.CHECK, junit=suite(one=False))
    nightly.run({"x=a": good, "x=b": good})
    nightly.run({"x=a": bad})
    found = changes(nightly.run({"x=a": good, "x=b": bad}))
    assert ("x=a n.one", "newly passing", "r2") in found
    assert ("x=b n.one", "newly failing", "r1") in found


def test_the_work_for_the_tests_of_a_cell_does_not_grow_with_the_number_of_cells(nightly: Nightly) -> None:
    cells = [f"x={number}" for number in range(200)]
    for fails in (True, False):
        row = nightly.record(dict.fromkeys(cells, Tried(junit=suite(a=fails, b=not fails))))
    steps = Counter[None]()
    with nightly.store.reading() as connection:
        database: Any = connection.connection.dbapi_connection
        database.set_progress_handler(lambda: steps.update([None]), 1000)  # called after 1000 instructions of SQLite
        comparison = earlier_results.since_last_run(connection, row)
        database.set_progress_handler(None, 0)
    assert comparison is not None
    assert comparison.tally == "200 tests newly failing; 200 tests newly passing"
    assert steps.total() < 200


def test_two_runs_are_compared_in_either_order(nightly: Nightly) -> None:
    first, second = nightly.record({"x=a": PASSED}), nightly.record({"x=a": FAILED, "x=b": PASSED})
    with nightly.store.reading() as connection:
        runs = [earlier_results.EarlierRun(row, f"r{row}", START) for row in (first, second)]
        assert changes(earlier_results.between(connection, runs[0], second)) == [("x=a", "newly failing", "r1")]
        back = earlier_results.between(connection, runs[1], first)
    assert changes(back) == [("x=a", "newly passing", "r2")]
    assert back is not None
    assert (back.new, back.gone) == (0, 1)


def test_the_search_ends_after_the_last_comparable_run(nightly: Nightly) -> None:
    nightly.run({"x=a": PASSED})
    for _ in range(130):
        nightly.record({"x=b": PASSED})
    assert changes(nightly.run({"x=a": FAILED, "x=b": FAILED})) == [
        ("x=a", "newly failing", "r1"),
        ("x=b", "newly failing", "r131"),
    ]


# The kinds of changes


@given(st.sampled_from(ENDED), st.sampled_from(ENDED), st.sampled_from(list(Cause)), st.sampled_from(list(Cause)))
def test_a_change_of_a_cell_is_consistent(old: Verdict, new: Verdict, old_cause: Cause, new_cause: Cause) -> None:
    before, after = (old, old_cause if old in UNEXPECTED else None), (new, new_cause if new in UNEXPECTED else None)
    kind = change_of_cell(before, after)
    assert (kind is Kind.NEWLY_FAILING) == (new in UNEXPECTED and old not in UNEXPECTED)
    if kind is Kind.NEWLY_PASSING:
        assert new is Verdict.PASSED
        assert old is not Verdict.PASSED
    if kind is Kind.OTHER_FAILURE:
        assert {old, new} <= UNEXPECTED
        assert before != after
    if before == after:
        assert kind is None
    if kind is None:
        assert before == after or new is Verdict.XFAILED


@given(st.sampled_from(CaseOutcome), st.sampled_from(CaseOutcome))
def test_a_change_of_a_test_is_consistent(old: CaseOutcome, new: CaseOutcome) -> None:
    kind = change_of_test(old, new)
    assert (kind is Kind.NEWLY_FAILING) == (new in FAIL_ON and old not in FAIL_ON)
    assert (kind is Kind.NEWLY_PASSING) == (old in FAIL_ON and new in {CaseOutcome.PASSED, CaseOutcome.FLAKY})


# The file


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
CHANGE = st.builds(
    VerdictChange,
    kind=st.sampled_from(Kind),
    **dict.fromkeys(("cell", "name", "before", "after", "run", "test", "before_cause", "cause", "message"), TEXT),
)


@given(st.lists(CHANGE), st.lists(CHANGE), TEXT, st.one_of(st.none(), st.integers(0)))
def test_the_content_of_the_file_is_the_comparison(
    cells: list[VerdictChange], tests: list[VerdictChange], run: str, gone: int | None
) -> None:
    comparison = SinceLastRun.of(cells, tests, run, START, has_more_runs=True, compared=1, new=2, gone=gone)
    assert SinceLastRun.from_json(json.loads(json.dumps(comparison.as_json()))) == comparison


def test_very_many_changes_are_counted_but_not_listed(tmp_path: Path) -> None:
    cells = [
        VerdictChange(Kind.NEWLY_PASSING if number else Kind.NEWLY_FAILING, "c", f"x={number}", "", "", "r")
        for number in range(3000, -1, -1)
    ]
    since_last_run.write(
        tmp_path, SinceLastRun.of(cells, (), "r", START, has_more_runs=False, compared=1, new=0, gone=None)
    )
    comparison = since_last_run.read(tmp_path)
    assert comparison is not None
    assert (len(comparison.cells), comparison.cells[0].name) == (1000, "x=0")
    assert comparison.tally == "1 cell newly failing; 3000 cells newly passing"


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "null",
        "{}",
        "[" * 100_000,
        b"\xff",
        '{"started": 5}',
        {"started": "yesterday"},
        {"cells": [5]},
        {"cells": {"a": 1}},
        {"cells": [{"kind": "x"}]},
        {"new": None},
        {"gone": "x"},
        {"new": 1e999},
        {"cell_counts": []},
        {"cell_counts": {"x": 1}},
    ],
    ids=range(16),
)
def test_a_damaged_file_is_no_comparison(tmp_path: Path, content: str | bytes | dict[str, Any]) -> None:
    whole = SinceLastRun.of((), (), "r", START, has_more_runs=False, compared=1, new=0, gone=None).as_json()
    file = RunDirectory(tmp_path).since_last_run
    file.write_text(json.dumps(whole))
    assert since_last_run.read(tmp_path) is not None
    if isinstance(content, dict):
        content = json.dumps({**whole, **content})
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert since_last_run.read(tmp_path) is None


def test_without_a_comparison_an_earlier_file_is_removed(tmp_path: Path) -> None:
    file = RunDirectory(tmp_path).since_last_run
    file.touch()
    since_last_run.write(tmp_path, None)
    assert not file.exists()


def test_the_comparisons_of_shards_are_combined(nightly: Nightly) -> None:
    nightly.run({"x=a": PASSED, "x=b": PASSED})
    parts = [nightly.run({"x=a": FAILED}), nightly.run({"x=b": FAILED, "x=c": PASSED})]
    combined = SinceLastRun.combined([part for part in parts if part is not None])
    assert combined is not None
    assert [change.name for change in combined.cells] == ["x=a", "x=b"]
    assert (combined.compared, combined.new, combined.gone) == (2, 1, None)
    assert combined.cell_counts == {Kind.NEWLY_FAILING: 2}
    assert SinceLastRun.combined([]) is None


def test_combined_comparisons_list_what_fails_as_before(nightly: Nightly) -> None:
    nightly.run({"x=a": FAILED, "x=b": FAILED})
    parts = [nightly.run({"x=a": FAILED}), nightly.run({"x=b": FAILED})]
    combined = SinceLastRun.combined([part for part in parts if part is not None])
    assert combined is not None
    assert [change.name for change in combined.known] == ["x=a", "x=b"]


def test_combined_comparisons_count_also_changes_that_are_not_listed(nightly: Nightly) -> None:
    nightly.run({"x=a": PASSED})
    part = nightly.run({"x=a": FAILED})
    assert part is not None
    many = dataclasses.replace(part, cell_counts={Kind.NEWLY_FAILING: 5000})
    combined = SinceLastRun.combined([many, many])
    assert combined is not None
    assert combined.cell_counts == {Kind.NEWLY_FAILING: 10_000}
