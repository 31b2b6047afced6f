"""The pauses between tries grow up to a limit."""

import pytest

from toolbox.ground.model import backoff


@pytest.mark.parametrize(("tries", "expected"), [(0, 0.2), (1, 0.4), (3, 1.6), (9, 5.0), (10_000, 5.0)])
def test_each_pause_is_twice_the_one_before_up_to_a_limit(tries: int, expected: float) -> None:
    found = [backoff.pause(tries, first=0.2, most=5.0) for _ in range(100)]
    assert all(pause == pytest.approx(expected, rel=backoff.JITTER) for pause in found)
    assert len(set(found)) > 90


def test_a_factor_of_one_changes_nothing() -> None:
    assert backoff.pause(7, first=3.0, most=9.0, factor=1.0) == pytest.approx(3.0, rel=backoff.JITTER)
