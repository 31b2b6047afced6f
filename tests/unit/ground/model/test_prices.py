"""A rental of TPU slices counts their chips, and a price is never assumed to be 0."""

import pytest

from toolbox.ground.model.prices import Price, Rental, Tier


@pytest.mark.parametrize(
    ("name", "slices", "accelerator", "chips", "label"),
    [
        ("v6e-1", 1, "v6e", 1, "v6e-1"),
        ("v5p-8", 1, "v5p", 4, "v5p-8"),
        ("v5litepod-16", 2, "v5e", 32, "2x v5litepod-16"),
    ],
)
def test_the_chips_of_all_slices_are_paid_for(name: str, slices: int, accelerator: str, chips: int, label: str) -> None:
    rental = Rental.of_tpu(name, zone="us-central1-b", tier=Tier.SPOT, slices=slices)
    assert rental == Rental(accelerator, chips, "us-central1", Tier.SPOT, label)


def test_the_cost_of_a_time_with_an_unknown_price_is_unknown() -> None:
    assert Price().of(3600.0) is None
    assert Price(0.0, "free").of(3600.0) == 0.0


def test_five_minutes_at_64_cents_an_hour_cost_5_3_cents_not_3_cents() -> None:
    # The table of RFC-002 says $0.03 for a run and $0.90 and $0.15 for a month. Its own arithmetic gives these values:
    run = Price(0.64).of(5 * 60)
    assert run is not None
    assert run == pytest.approx(0.0533, abs=5e-5)
    nightly, on_demand = 30 * run, 5 * run
    assert nightly == pytest.approx(1.60)
    assert on_demand == pytest.approx(0.267, abs=5e-4)
    assert nightly + on_demand == pytest.approx(1.87, abs=5e-3)
