"""An update follows the values of accepted levels; only a user can accept a changed level."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from scipy import integrate, stats

from tests.unit.records.results.nightly import BEGAN, HISTORY, Nights, with_history
from toolbox.ground.model.bounds import Bound, Direction, Method
from toolbox.records.results import bounds_formulas, levels, pooled_noise
from toolbox.records.results.bounds_update import LARGEST_WIDENING, Acceptance, Action, BoundsPolicy

LEVEL = 22.0


def width(bound: Bound | None) -> float:
    assert bound is not None
    assert bound.lower is not None
    assert bound.upper is not None
    return bound.upper - bound.lower


def share_outside(bound: Bound | None, level: float, noise: float = 0.01) -> float:
    """Return the probability that a run at a level is out of bounds."""
    assert bound is not None
    assert bound.lower is not None
    assert bound.upper is not None
    run = stats.norm(level, noise * level)
    return float(run.cdf(bound.lower) + run.sf(bound.upper))


# A loss that is not accepted


@pytest.mark.parametrize("seed", range(3))
def test_a_regression_of_8_percent_keeps_failing_for_thirty_nights(seed: int) -> None:
    nights = with_history(seed)
    before = nights.bound
    assert nights.nights(30, 1.08 * LEVEL) == [True] * 30
    assert nights.bound == before


@pytest.mark.parametrize(("count", "message"), [(1, "1 accepted value:"), (2, "2 accepted values:")])
def test_too_few_values_are_counted(count: int, message: str) -> None:
    nights = Nights(1)
    for _ in range(count):
        nights.run()
    assert nights.update().why == f"{message} bounds need 5"


def test_the_night_after_a_regression_changes_no_bound() -> None:
    nights = with_history(1)
    before = nights.bound
    nights.level = 1.08 * LEVEL
    assert nights.run()
    decision = nights.update()
    assert (decision.after, decision.action) == (before, Action.REFUSED)
    assert decision.why == f"the level has changed since run-{HISTORY}: accept with --accept=x=a:time --reason=WHY"


@pytest.mark.parametrize("factor", [0.9, 1.1])
@pytest.mark.parametrize("count", [1, 4, 8])
def test_a_changed_level_is_not_adopted_and_nothing_widens(factor: float, count: int) -> None:
    nights = with_history(2)
    before = nights.bound
    nights.nights(count, factor * LEVEL)
    assert nights.bound == before
    assert share_outside(nights.bound, 0.8 * LEVEL) > 0.999


def test_values_after_a_small_change_are_removed_when_the_change_is_found() -> None:
    nights = with_history(3)
    before = nights.bound
    nights.nights(25, 1.03 * LEVEL)
    decision = nights.update()
    assert decision.action is Action.REFUSED
    assert before is not None
    assert nights.bound is not None
    assert nights.bound.mean == pytest.approx(before.mean, rel=0.005)
    assert width(nights.bound) < LARGEST_WIDENING * width(before)


def test_a_returning_level_is_part_of_the_accepted_level() -> None:
    nights = with_history(4)
    nights.nights(10, 1.08 * LEVEL)
    assert nights.update().action is Action.REFUSED
    nights.nights(12, LEVEL)
    decision = nights.update()
    assert decision.action in (Action.WRITTEN, Action.KEPT)
    assert nights.bound is not None
    assert nights.bound.until == nights.series.runs[-1].started
    assert share_outside(nights.bound, 1.08 * LEVEL) > 0.999


def test_without_a_change_bounds_follow_the_latest_values() -> None:
    nights = with_history(5)
    assert sum(nights.nights(40)) <= 1
    assert nights.bound is not None
    assert nights.bound.samples == bounds_formulas.WINDOW
    assert nights.bound.since == nights.series.runs[-bounds_formulas.WINDOW].started


def test_a_first_update_begins_at_the_last_confirmed_change() -> None:
    nights = with_history(6)
    nights.nights(20, 1.3 * LEVEL)
    decision = BoundsPolicy().decide(nights.series, None)
    assert decision.after is None  # all values of the latest level failed their cells
    decision = BoundsPolicy().decide(replace(nights.series, confirmed=()), None)
    assert decision.after is not None
    assert decision.after.since == nights.series.runs[HISTORY].started


# Accepted levels


def accepted_after(count: int, seed: int = 7, noise: float = 0.01) -> Nights:
    """Return a cell whose improvement of 10% was accepted after `count` nights."""
    nights = with_history(seed, noise)
    nights.nights(count, 0.9 * LEVEL)
    assert nights.update(accept=True).is_accepted
    return nights


def test_an_accepted_level_records_person_reason_and_time() -> None:
    bound = accepted_after(1).bound
    assert bound is not None
    assert (bound.samples, bound.accepted_by, bound.accepted_reason) == (1, "ada", "a faster kernel")
    assert bound.accepted_since == BEGAN + timedelta(days=HISTORY)
    assert bound.accepted_at == bound.accepted_since + timedelta(hours=10)
    assert bound.is_gating


def test_bounds_of_an_accepted_level_have_the_noise_of_the_earlier_one() -> None:
    nights = accepted_after(2)
    values = np.array(nights.values)
    history, new = values[:HISTORY], values[HISTORY:]
    spread = history.std(ddof=1) / history.mean() * new.mean()
    half = stats.t.ppf(0.9995, HISTORY - 1) * spread * np.sqrt(1 + 1 / 2)
    assert nights.bound is not None
    assert (nights.bound.lower, nights.bound.upper) == pytest.approx((new.mean() - half, new.mean() + half), rel=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_from_the_second_night_on_a_loss_of_5_percent_is_out_of_bounds(seed: int) -> None:
    bound = accepted_after(2, seed).bound
    assert bound is not None
    assert bound.mean is not None
    assert bound.side(1.05 * bound.mean) is not None


@pytest.mark.parametrize("seed", range(3))
def test_a_loss_of_5_percent_after_an_accepted_improvement_keeps_failing(seed: int) -> None:
    nights = accepted_after(1, seed, noise=0.005)
    assert sum(nights.nights(15, 1.05 * 0.9 * LEVEL)) >= 14


def test_ten_values_of_an_accepted_level_have_a_noise_of_their_own() -> None:
    nights = accepted_after(1)
    nights.nights(8)
    young = nights.bound
    nights.nights(12)
    old = nights.bound
    assert young is not None
    assert old is not None
    assert (young.noise_samples, old.noise_samples) == (HISTORY, None)
    assert (old.samples, old.accepted_reason) == (21, "a faster kernel")


def test_an_accepted_loss_passes_and_a_second_one_does_not() -> None:
    nights = with_history(8)
    nights.nights(5, 1.08 * LEVEL)
    nights.update(accept=True)
    assert sum(nights.nights(10)) == 0
    assert sum(nights.nights(10, 1.18 * LEVEL)) == 10


def test_a_level_is_not_accepted_without_a_history_that_gives_its_noise() -> None:
    nights = with_history(9)
    short = replace(nights.series, values=np.array([10.0, 10.1, 30.0]), confirmed=(2,), runs=nights.series.runs[:3])
    decision = BoundsPolicy(acceptance=Acceptance(lambda _: True, "ada", "why", BEGAN)).decide(short, nights.bound)
    assert (decision.action, decision.is_accepted) == (Action.REFUSED, False)


# Wider bounds, manual bounds and chosen runs


def test_bounds_that_widen_by_more_than_half_are_refused_without_a_flag() -> None:
    nights = with_history(10)
    before = nights.bound
    noisier = Nights(11, noise=0.03)
    for _ in range(15):
        noisier.run()
    nights.values += noisier.values
    decision = nights.update()
    assert (decision.action, decision.after) == (Action.REFUSED, before)
    assert "times as wide: allow it with --allow_wider" in decision.why
    decision = nights.update(may_widen=True)
    assert decision.action is Action.WRITTEN
    assert width(decision.after) > LARGEST_WIDENING * width(before)


def test_an_update_whose_mean_is_out_of_manual_bounds_is_refused() -> None:
    manual = Bound(1, 2, None, None, Method.MANUAL, "s")
    decision = BoundsPolicy().decide(with_history(12).series, manual)
    assert (decision.action, decision.after) == (Action.REFUSED, manual)
    assert "is out of the present bounds" in decision.why


def test_manual_bounds_are_kept() -> None:
    nights = with_history(13)
    decision = BoundsPolicy().decide(nights.series, None, is_manual=True)
    assert (decision.action, decision.after, decision.why) == (Action.KEPT, None, "manual bounds are never changed")


def test_bounds_use_only_the_values_of_the_chosen_runs() -> None:
    series = with_history(14).series
    decision = BoundsPolicy(runs=series.runs[-12:]).decide(series, None)
    assert decision.after is not None
    assert decision.after.samples == 12


def test_choosing_the_runs_of_a_changed_level_does_not_adopt_it() -> None:
    nights = with_history(15)
    nights.nights(12, 1.08 * LEVEL)
    decision = BoundsPolicy(runs=nights.series.runs[HISTORY:]).decide(nights.series, nights.bound)
    assert (decision.action, decision.after) == (Action.REFUSED, nights.bound)


def test_bounds_in_another_unit_do_not_stop_an_update() -> None:
    nights = with_history(16)
    assert nights.bound is not None
    before = replace(nights.bound, unit="ms")
    assert BoundsPolicy().decide(nights.series, before).action is Action.WRITTEN


def test_an_old_value_that_is_too_large_does_not_stop_an_update() -> None:
    nights = with_history(20, count=60)
    nights.values[3], nights.values[4] = 1.7e308, -1.7e308
    nights.nights(3, 0.9 * LEVEL)
    assert nights.update(accept=True).is_accepted


# The smallest detectable change


@pytest.mark.parametrize(("direction", "reach"), [(Direction.LOWER, 3.0), (Direction.HIGHER, 1.0), (None, 3.0)])
def test_the_smallest_detected_change_fails_two_attempts_with_90_percent(
    direction: Direction | None, reach: float
) -> None:
    share = bounds_formulas.smallest_detected(9.0, 13.0, 10.0, 0.5, direction)
    assert share is not None
    assert stats.norm(share * 10, 0.5).sf(reach) ** 2 == pytest.approx(0.9, abs=0.005)


def test_bounds_around_zero_have_no_detectable_share() -> None:
    assert bounds_formulas.smallest_detected(-1, 1, 0, 0.3, None) is None


def test_bounds_contain_the_smallest_detectable_change() -> None:
    bound = with_history(17).bound
    assert bound is not None
    assert bound.minimum_detectable_change is not None
    assert 0.045 < bound.minimum_detectable_change < 0.06


def test_the_interval_with_earlier_noise_has_its_confidence() -> None:
    # Integrate the chance that a new value is out over the chi-squared distribution of the earlier variance.
    freedom, count, confidence = 20, 3, 0.99
    variance = 1 + 1 / count

    def out(chi: float) -> float:
        noise = pooled_noise.Noise(chi / freedom, freedom, 100.0, is_relative=False)
        lower, upper, _ = bounds_formulas.interval_with_noise(np.zeros(count), noise, confidence)
        half = (upper - lower) / 2
        return float(2 * stats.norm.sf(half / np.sqrt(variance)) * stats.chi2(freedom).pdf(chi))

    assert integrate.quad(out, 0, 100)[0] == pytest.approx(1 - confidence, abs=1e-4)


def test_pooled_noise_is_that_of_each_level() -> None:
    rng = np.random.default_rng(18)
    shape = 1 + 0.01 * rng.standard_normal(60)
    values = np.concatenate([10 * shape[:30], 30 * shape[30:]])
    noise = pooled_noise.within_levels(values)
    assert noise is not None
    parts = [part.var(ddof=1) / part.mean() ** 2 for part in (values[:30], values[30:])]
    assert noise.freedom == 58
    assert noise.at(30) / 30**2 == pytest.approx(np.mean(parts))
    assert noise.at(10) / 10**2 == pytest.approx(np.mean(parts))


def test_an_accepted_level_is_recognized_if_its_beginning_moves_by_a_few_values() -> None:
    nights = with_history(19)
    nights.nights(30, 0.9 * LEVEL)
    nights.update(accept=True)
    assert nights.bound is not None
    assert nights.bound.accepted_since is not None
    for offset in (-2, 0, 2):
        moved = replace(nights.bound, accepted_since=nights.bound.accepted_since + timedelta(days=offset))
        assert levels.accepted(nights.series, moved).changed is None
