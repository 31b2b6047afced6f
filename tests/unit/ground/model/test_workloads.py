"""The record of a supervisor gives the outcome of a workload; without a valid record, the workload is lost."""

from itertools import combinations
from typing import Any

import pytest

from toolbox.ground.model.workloads import AttemptState, EndedBy, WorkloadOutcome

RECORD: dict[str, Any] = {
    "ended_by": "timeout",
    "exit_code": 143,
    "signal": 15,
    "message": "it ran longer than 5 s",
    "started": 1_700_000_000.0,
    "seconds": 5.1,
    "cpu_seconds": 2.5,
    "leftovers": 2,
    "log_bytes": {"stdout": 100, "stderr": 10},
    "log_dropped": {"stdout": 30, "stderr": 4},
    "log_fault": "No space left on device",
    "host": "gpu-1",
    "accelerators": "8x NVIDIA H200",
}


def test_an_outcome_is_parsed_from_its_record() -> None:
    outcome = WorkloadOutcome.parse({**RECORD, "changed_startup_files": "~/.bashrc"})
    assert outcome == WorkloadOutcome(
        EndedBy.TIMEOUT,
        143,
        "it ran longer than 5 s",
        5.1,
        2.5,
        2,
        34,
        "No space left on device",
        "gpu-1",
        "8x NVIDIA H200",
        changed_startup_files="~/.bashrc",
    )


def test_without_a_record_the_workload_is_lost() -> None:
    outcome = WorkloadOutcome.parse(None)
    assert (outcome.ended_by, outcome.exit_code) == (EndedBy.LOST, None)
    assert outcome.message == "the supervisor of the workload was killed, or the machine was restarted"


@pytest.mark.parametrize("how", EndedBy)
def test_every_end_that_a_supervisor_records_is_known(how: EndedBy) -> None:
    assert WorkloadOutcome.parse({**RECORD, "ended_by": how.value}).ended_by is how


@pytest.mark.parametrize("missing", sorted(RECORD.keys() - {"signal", "started", "log_bytes"}))
def test_an_incomplete_record_is_refused(missing: str) -> None:
    outcome = WorkloadOutcome.parse({key: value for key, value in RECORD.items() if key != missing})
    assert outcome.ended_by is EndedBy.LOST
    assert outcome.message == "the file outcome.json of the workload was not written by its supervisor"


@pytest.mark.parametrize(
    "forged",
    [
        {"ended_by": "victory"},
        {"ended_by": ["exit"]},
        {"log_dropped": [1]},
        {"log_dropped": {"stdout": "x"}},
        {"exit_code": "0"},
        {"exit_code": True},
        {"exit_code": 10**400},
        {"message": ["it"]},
        {"message": None},
        {"seconds": float("nan")},
        {"seconds": float("inf")},
        {"seconds": -1},
        {"cpu_seconds": "1"},
        {"leftovers": 1.5},
        {"oom_kills": "many"},
        {"host": {"name": "it"}},
        {"accelerators": 8},
        {"changed_startup_files": ["~/.bashrc"]},
    ],
)
def test_a_forged_record_is_refused(forged: dict[str, Any]) -> None:
    assert WorkloadOutcome.parse({**RECORD, **forged}).ended_by is EndedBy.LOST


def test_a_long_text_is_truncated() -> None:
    outcome = WorkloadOutcome.parse({**RECORD, "message": "m" * 10**6, "host": "h" * 10**6})
    assert (len(outcome.message), len(outcome.host)) == (2000, 2000)


def test_only_an_ended_or_unreachable_attempt_is_over() -> None:
    assert {state for state in AttemptState if state.is_over} == {AttemptState.ENDED, AttemptState.UNREACHABLE}


def test_an_attempt_enters_later_states_and_does_not_return() -> None:
    order = [AttemptState.SUBMITTED, AttemptState.RUNNING, AttemptState.STOPPING, AttemptState.ENDING]
    for before, after in combinations(order, 2):
        assert (before.may_become(after), after.may_become(before)) == (True, False)
    for final in (AttemptState.ENDED, AttemptState.UNREACHABLE):
        assert all(state.may_become(final) for state in order)
        assert not any(final.may_become(state) for state in AttemptState)
