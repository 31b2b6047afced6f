"""Flaky cells are found from the observations of many runs."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest
from scipy import integrate, stats

from toolbox.records.results.flakiness import Flakiness, Observation, State, assess, jeffreys

BEGAN = datetime(2026, 11, 1, tzinfo=UTC)
OUTCOMES = {"p": True, "f": False, "o": False, "-": None}


def seen(keys: str, *, cell: str = "c", quarantined: bool = False, since: int = 0) -> list[Observation]:
    """Return observations of a cell; `keys` has a word per key and a letter per run.

    The letters are p(assed), f(ailed), o(ut of range, which is a failure too), and - for no evidence.
    """
    return [
        Observation(
            cell,
            f"model={cell}",
            f"r{since + number}",
            "a100",
            "5e77",
            OUTCOMES[letter],
            BEGAN + timedelta(days=since + number, minutes=minute),
            f"{since + number}.{minute}",
            quarantined,
            letter == "o",
        )
        for number, word in enumerate(keys.split())
        for minute, letter in enumerate(word)
    ]


def one(*observations: Observation) -> Flakiness:
    """Return the flakiness of the only observed cell."""
    (found,) = assess(observations)
    return found


def same(observation: Observation, **changes: object) -> Observation:
    """Return a copy of an observation with changed fields."""
    fields = {name: getattr(observation, name) for name in Observation.__slots__}
    return Observation(**{**fields, **changes})


def without_key(letters: str, revision: str | None = None) -> list[Observation]:
    """Return observations of a cell at a revision that does not identify the code."""
    return [same(observation, revision=revision) for observation in seen(letters)]


def test_pass_and_fail_under_one_key_is_a_flake_event() -> None:
    found = one(*seen("p fpf p"))
    (event,) = found.events
    assert (event.revision, event.passed, event.failed) == ("r1", ("1.1",), ("1.0", "1.2"))
    assert event.time == BEGAN + timedelta(days=1, minutes=2)


@pytest.mark.parametrize("keys", ["p f p", "pp ff pp", "-p f-"])
def test_pass_and_fail_under_different_keys_is_no_flake_event(keys: str) -> None:
    assert one(*seen(keys)).events == ()


@pytest.mark.parametrize("field", ["revision", "accelerator", "settings"])
def test_another_revision_accelerator_or_setting_is_another_key(field: str) -> None:
    first, second = seen("pf")
    assert one(first, second).events
    assert not one(first, same(second, **{field: "other"})).events


@pytest.mark.parametrize("revision", ["r0+", None, ""])
def test_an_unknown_or_changed_revision_has_no_key(revision: str | None) -> None:
    found = one(*without_key("pfpf", revision))
    assert (found.state, found.keys, found.events) == (State.HEALTHY, 0, ())


def test_an_attempt_without_evidence_is_neither_pass_nor_failure() -> None:
    found = one(*seen("p- -f -- pf-"))
    assert (found.keys, len(found.events)) == (1, 1)


def test_only_keys_with_two_runs_are_judged() -> None:
    assert one(*seen("p f pp ff pf")).keys == 3


@pytest.mark.parametrize(
    ("keys", "state"),
    [
        ("pp pp p", State.HEALTHY),
        ("p f p", State.HEALTHY),
        ("p f f", State.HEALTHY),
        ("p f f f", State.BROKEN),
        ("p fff", State.BROKEN),
        ("pf pf fff", State.BROKEN),
        ("p f f f p", State.HEALTHY),
        ("pfff", State.SUSPECT),
        ("pf", State.SUSPECT),
        ("pf pf", State.FLAKY),
        ("pf pf" + " pp" * 8, State.FLAKY),
        ("pf pf" + " pp" * 12, State.SUSPECT),
        ("pf pf" + " p" * 19, State.FLAKY),
        ("pf pf" + " p" * 20, State.HEALTHY),
        ("pf pf f" + " p" * 19, State.FLAKY),
        ("p o o o", State.OUT_OF_RANGE),
        ("p f o o o", State.OUT_OF_RANGE),
        ("p o o f", State.BROKEN),
        ("p o o", State.HEALTHY),
        ("po po", State.FLAKY),
        ("p op po p", State.FLAKY),
        ("p o o o p", State.HEALTHY),
    ],
)
def test_the_state_of_a_cell(keys: str, state: State) -> None:
    assert one(*seen(keys)).state is state


@pytest.mark.parametrize("revision", ["r0+", None])
@pytest.mark.parametrize(
    ("letters", "state"),
    [("fff", State.BROKEN), ("pf-ff", State.BROKEN), ("ff", State.HEALTHY), ("fffp", State.HEALTHY)],
)
def test_a_cell_that_always_fails_is_broken_under_any_key(revision: str | None, letters: str, state: State) -> None:
    assert one(*without_key(letters, revision)).state is state


def test_the_latest_runs_are_those_with_and_without_a_key() -> None:
    failed = [same(run, time=run.time + timedelta(days=9)) for run in without_key("ff")]
    assert one(*seen("p f"), *failed).state is State.BROKEN
    assert one(*seen("pf"), *failed).state is State.SUSPECT


def test_a_cell_without_evidence_is_omitted() -> None:
    known = seen("-p", cell="known")
    assert [found.cell for found in assess([*known, *seen("-- -", cell="unknown")])] == ["known"]


def test_clean_keys_are_counted_from_the_latest_back_to_the_first_failure() -> None:
    assert one(*seen("pp pf p pp p-")).clean == 3
    assert one(*seen("pp f p")).clean == 1
    assert one(*seen("p p pf")).clean == 0


def test_keys_are_sorted_by_their_latest_runs() -> None:
    early, late = seen("p p")
    again = same(early, passed=False, time=late.time + timedelta(days=1))
    assert one(early, late, again).clean == 0


@pytest.mark.parametrize(
    ("keys", "may"), [("f" + " p" * 20, True), (" p" * 19, False), ("p" + " p" * 19 + " pf", False)]
)
def test_twenty_clean_keys_in_quarantine_are_enough_to_leave_it(keys: str, may: bool) -> None:
    assert one(*seen("pf pf"), *seen(keys, quarantined=True, since=2)).may_be_released is may


def test_keys_from_before_the_quarantine_do_not_count_for_leaving_it() -> None:
    assert not one(*seen("p " * 30), *seen("p " * 19, quarantined=True, since=30)).may_be_released


def test_only_a_cell_in_quarantine_may_be_released() -> None:
    assert not one(*seen("p " * 30)).may_be_released
    assert not one(*seen("p " * 30, quarantined=True), *seen("p", since=30)).may_be_released


def test_the_worst_cells_come_first_in_any_order_of_observations() -> None:
    cells = {"healthy": "pp pp", "suspect": "pf", "flaky": "pf pf pp", "flakier": "pf pf", "broken": "fff"}
    everything = [observation for cell, keys in cells.items() for observation in seen(keys, cell=cell)]
    random.Random(0).shuffle(everything)
    assert [found.cell for found in assess(everything)] == ["broken", "flakier", "flaky", "suspect", "healthy"]
    assert assess([]) == []


def test_a_cell_has_the_name_of_its_latest_run() -> None:
    early, late = seen("p p")
    assert one(same(late, name="new"), early).name == "new"


@pytest.mark.parametrize(("events", "keys"), [(1, 1), (1, 5), (3, 20), (20, 20), (2, 1000)])
def test_the_posterior_is_that_of_jeffreys_prior(events: int, keys: int) -> None:
    posterior = stats.beta(events + 0.5, keys - events + 0.5)
    mean, lower = jeffreys(events, keys)
    assert mean == pytest.approx(posterior.mean())
    assert integrate.quad(posterior.pdf, 0, lower)[0] == pytest.approx(0.05, abs=1e-6)


def test_without_an_event_the_lower_bound_is_zero() -> None:
    mean, lower = jeffreys(0, 10)
    assert mean == pytest.approx(0.5 / 11)
    assert lower == 0.0


def test_keys_with_one_run_have_no_mean() -> None:
    found = one(*seen("p p p"))
    assert (found.keys, found.mean, found.lower) == (0, None, 0.0)


def test_the_lower_bound_is_below_the_true_rate_nearly_always() -> None:
    rng = random.Random(0)
    bounds = [jeffreys(sum(rng.random() < 0.2 for _ in range(30)), 30)[1] for _ in range(2000)]
    assert 0.92 < sum(bound < 0.2 for bound in bounds) / 2000 < 0.98
