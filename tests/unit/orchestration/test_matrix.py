"""`matrix.run()` runs the cells of the plan as steps of the current step, and returns their results."""

import datetime as dt
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.backend import BROKEN, CRASH, Machines
from tests.fakes.bench import AT_ONCE
from tests.unit.matrix.conftest import Planned
from tests.unit.matrix.conftest import planned as planned  # noqa: PLC0414  # imports the fixture
from toolbox.ground.model.errors import ConfigurationError, StepError, UsageError
from toolbox.ground.model.events import DurationsExpected, FlakyCellsFailed, Note, StepFinished
from toolbox.ground.model.prices import Price
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.ground.system import filesystem
from toolbox.ground.system.redaction import Redactor
from toolbox.matrix.plan import Plan, Selection
from toolbox.matrix.scheduler import Options
from toolbox.orchestration import matrix, session, storing
from toolbox.records.runs import steps
from toolbox.records.runs.recorder import Recorder
from toolbox.records.runs.steps import Outcome, Step

from .conftest import Seen, Work

NO_RETRIES = {"infrastructure": 0, **AT_ONCE}

AtWork = Callable[..., Plan]


@pytest.fixture
def top(tmp_path: Path, seen: Seen) -> Iterator[Step]:
    """Yield the top step of a run whose directory is beside the directories of other runs."""
    root = filesystem.make_directory(tmp_path / "runs/20260105")
    step = Step(root, Recorder(root, Redactor(), [seen]), "top")
    with steps.entered(step):
        yield step


@pytest.fixture
def at_work(work: Work, planned: Planned) -> AtWork:
    """Return a function that opens a session of a project with a matrix: `at_work("ab", machines)`."""

    def begin(x: str, machines: Machines, *, options: Options = Options(1), **fields: Any) -> Plan:  # noqa: B008
        selection = fields.pop("selection", Selection())
        target = replace(machines.target("one"), price=Price(fields.pop("per_hour", None), "basis"))
        block = {"axes": {"x": list(x)}, "retries": NO_RETRIES, **fields}
        found = work("a: 1\n")
        found.plan = planned(block, target, selection=selection)
        found.options = options
        return found.plan

    return begin


def fail() -> StepError:
    """Run the matrix, and return the error that it raises."""
    with pytest.raises(StepError) as caught:
        matrix.run()
    return caught.value


def test_the_results_are_in_the_order_of_the_plan(at_work: AtWork, top: Step) -> None:
    at_work("ba", Machines())
    results = matrix.run()
    assert [(result.name, result.settings, result.outcome.verdict) for result in results] == [
        ("x=b", {"x": "b"}, Verdict.PASSED), ("x=a", {"x": "a"}, Verdict.PASSED),
    ]  # fmt: skip
    assert results[0].directory == top.directory / "000__x=b"


def test_the_error_counts_failures_and_names_the_first_of_the_worst(at_work: AtWork, top: Step) -> None:
    at_work("abcd", Machines({"b": CRASH, "c": BROKEN, "d": BROKEN}))
    error = fail()
    assert (error.verdict, error.cause, error.directory) == (
        Verdict.ERROR,
        Cause.INFRASTRUCTURE,
        top.directory / "002__x=c",
    )
    assert str(error).splitlines() == [
        "of 4 cells: 1 passed, 1 failed, 2 error",
        "outage: 2 of 4 cells failed because of the infrastructure; cells are no longer retried",
        "x=c: the machine was restarted",
    ]


def test_a_flaky_cell_is_not_named_first(at_work: AtWork, seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = at_work("abc", Machines(dict.fromkeys("abc", CRASH)))
    flaky = {plan.cells[0].id, plan.cells[1].id}
    monkeypatch.setattr(storing, "flaky_cells", lambda *_: flaky)
    assert str(fail()).splitlines()[-1].startswith("x=c: ")
    assert [event.cells for event in seen.of(FlakyCellsFailed)] == [tuple(sorted(flaky))]


def test_without_check_failures_are_returned_and_not_raised(at_work: AtWork) -> None:
    at_work("ab", Machines({"a": CRASH}))
    assert [result.outcome.verdict for result in matrix.run(check=False)] == [Verdict.FAILED, Verdict.PASSED]


def test_cells_that_did_not_start_are_counted(at_work: AtWork) -> None:
    at_work("abc", Machines({"a": CRASH}), options=Options(1, max_failures=1))
    assert str(fail()).splitlines()[:2] == [
        "of 3 cells: 1 failed, 2 not started", "a cell did not pass: no more cells were started",
    ]  # fmt: skip


# A cell of these tests costs 1 USD per second, and takes 1.5 s.
PRICED: dict[str, Any] = {"per_hour": 3600.0, "timeouts": {"run": 1.5}}


def test_a_matrix_that_the_cost_limit_stopped_has_the_cause_capacity(at_work: AtWork, top: Step) -> None:
    at_work("abc", Machines(), options=Options(1, max_cost=3.0), **PRICED)
    error = fail()
    assert (error.verdict, error.cause, error.directory) == (Verdict.ERROR, Cause.CAPACITY, top.directory)
    first, second = str(error).splitlines()
    assert first == "of 3 cells: 2 passed, 1 skipped"
    assert second.startswith("the cost limit of 3.00 USD is reached: ")
    outcome = top.outcome()
    assert outcome is not None
    assert (outcome.verdict, outcome.cause) == (Verdict.ERROR, Cause.CAPACITY)


def test_without_check_a_cost_limit_is_still_an_error_of_the_step(at_work: AtWork, top: Step) -> None:
    at_work("ab", Machines(), options=Options(1, max_cost=1.5), **PRICED)
    assert [result.outcome.verdict for result in matrix.run(check=False)] == [Verdict.PASSED, Verdict.SKIPPED]
    outcome = top.outcome()
    assert outcome is not None
    assert (outcome.verdict, outcome.cause) == (Verdict.ERROR, Cause.CAPACITY)


def test_a_failed_cell_is_named_although_the_cost_limit_is_reached(at_work: AtWork) -> None:
    at_work("ab", Machines({"a": CRASH}), max_cost=1.5, **PRICED)
    error = fail()
    assert (error.verdict, error.cause) == (Verdict.ERROR, Cause.CAPACITY)
    assert str(error).splitlines()[0] == "of 2 cells: 1 failed, 1 skipped"
    assert str(error).splitlines()[-1].startswith("x=a: exit_status: exit status 1, expected 0")


@pytest.mark.parametrize(("ending", "verdict"), [(Machines(), Verdict.XPASSED), (Machines({"a": CRASH}), None)])
def test_an_expected_failure_raises_only_if_the_cell_passes(
    at_work: AtWork, ending: Machines, verdict: Verdict | None
) -> None:
    at_work("a", ending, xfail=[{"when": {}, "reason": "#7", "owner": "me", "expires": dt.date(2030, 1, 1)}])
    if verdict is None:
        assert matrix.run()[0].outcome.verdict is Verdict.XFAILED
    else:
        assert fail().verdict is verdict


def test_skipping_all_cells_is_not_a_failure(at_work: AtWork, top: Step) -> None:
    at_work("ab", Machines(), skip=[{"when": {}, "reason": "#7"}])
    assert [result.outcome.message for result in matrix.run()] == ["#7", "#7"]
    assert top.outcome() == Outcome(Verdict.SKIPPED, None, "#7")


def test_an_empty_shard_is_skipped(at_work: AtWork, top: Step) -> None:
    at_work("ab", Machines(), selection=Selection(shard=(3, 3)))
    assert matrix.run() == []
    assert top.outcome() == Outcome(Verdict.SKIPPED, None, "there are no cells to run")


def test_a_matrix_cannot_run_twice(at_work: AtWork) -> None:
    at_work("a", Machines())
    matrix.run()
    with pytest.raises(UsageError, match="the matrix of this run has already been run"):
        matrix.run()


def test_running_a_missing_matrix_is_an_error(work: Work) -> None:
    work("a: 1\n")
    with pytest.raises(ConfigurationError, match=r"project\.yaml: there is no block `matrix` to run"):
        matrix.run()


def test_workloads_on_this_machine_find_the_configuration(at_work: AtWork, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, str] = {}
    machines = Machines()
    submit = machines.submit
    monkeypatch.setattr(
        machines, "submit", lambda word, name, context: (given.update(context.variables), submit(word, name, context))
    )
    at_work("a", machines)
    matrix.run()
    assert given == session.current().variables


# The hosts of the targets


def test_machines_returns_the_hosts_of_all_targets(work: Work, planned: Planned) -> None:
    machines = Machines()
    found = work("a: 1\n")
    assert matrix.machines() == [None]
    found.plan = planned({"axes": {"x": ["a"]}}, *map(machines.target, ("one", "two")))
    assert matrix.machines() == [["one.example", "two.example"]]
    found.plan = planned({"axes": {"x": ["a"]}})
    assert matrix.machines() == [None]


# The durations of cells in earlier runs


def earlier(directory: Path, run: str, **seconds: float) -> None:
    """Write the summary of an earlier run of the project with these durations of cells."""
    cells = [{"name": f"x={x}", "kind": "cell", "verdict": "passed", "seconds": took} for x, took in seconds.items()]
    filesystem.write_json(directory.parent / run / "summary.json", {"steps": cells})


@pytest.fixture
def durations(at_work: AtWork, seen: Seen) -> Callable[[], dict[str, float]]:
    def found() -> dict[str, float]:
        at_work("a", Machines())
        matrix.run()
        return {name: time for event in seen.of(DurationsExpected) for name, time in event.seconds.items()}

    return found


def test_expected_durations_come_from_the_newest_runs(top: Step, durations: Callable[[], dict[str, float]]) -> None:
    for run, seconds in (("20260101", 1.0), ("20260102", 2.0), ("20260103", 3.0), ("20260104", 4.0)):
        earlier(top.directory, run, a=seconds)
    earlier(top.directory, "20260102", b=5.0)
    earlier(top.directory, "20260101", c=6.0)
    assert durations() == {"x=a": 4.0, "x=b": 5.0}


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"steps": [{"kind": "cell"}]}', '{"steps": 5}', "\xff"])
def test_unreadable_summaries_are_ignored(top: Step, durations: Callable[[], dict[str, float]], text: str) -> None:
    earlier(top.directory, "20260102", a=2.0)
    filesystem.write_bytes(top.directory.parent / "20260103" / "summary.json", text.encode("latin-1"))
    assert durations() == {"x=a": 2.0}


def test_only_passed_cells_give_expected_durations(
    top: Step, seen: Seen, durations: Callable[[], dict[str, float]]
) -> None:
    failed = {"name": "x=a", "kind": "cell", "verdict": "failed", "seconds": 1.0}
    phase = {"name": "test", "kind": "phase", "verdict": "passed", "seconds": 1.0}
    filesystem.write_json(top.directory.parent / "20260103" / "summary.json", {"steps": [failed, phase]})
    assert durations() == {}
    assert seen.of(DurationsExpected) == []
    assert len(seen.of(StepFinished)) == 1
    assert seen.of(Note) == []
