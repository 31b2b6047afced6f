"""The longest time of a worker is the sum of the limits of its steps, so that no outer limit is exceeded first."""

from __future__ import annotations

import pytest

from toolbox.features.notebooks.worker.time_limits import worker_seconds

WORKER = 120 + 2 * 60  # its start and its cache, and two environments that ask their Python
CHECK = 5 + 5  # the ends of its processes
FILES, START, READY, LAST_OUTPUTS, COMPARISON = 60, 120, 60 + 60, 30, 10
END_OF_CELL = 3 + 3 + 5 + 3  # the interrupt, the end of the cell, another connection, and how the kernel ended
END_OF_KERNEL = 5 + 3 + 3 + 5  # of the sampler, of the kernel with and without a signal, and of its processes
NOTEBOOK = FILES + START + READY + LAST_OUTPUTS + COMPARISON + END_OF_CELL + END_OF_KERNEL
SERVER_KERNEL = 120 + 60 + 120 + 30  # its start, its connection, its first answer and its end
SERVER_CHECK = 30 + 3 * 30
SERVER_NOTEBOOK = 2 * SERVER_KERNEL + 10 + 4 * 30


@pytest.mark.parametrize(
    ("checks", "notebooks", "uses_server", "expected"),
    [
        ([], [], False, WORKER + 900),
        ([60, 5], [], False, WORKER + 900 + 65 + 2 * CHECK),
        ([60], [1800, 30, 0.5], False, WORKER + 900 + 60 + CHECK + 1830.5 + 3 * NOTEBOOK),
        (
            [60, 5],
            [1800],
            True,
            WORKER + 900 + 65 + 2 * (CHECK + SERVER_CHECK) + 1800 + NOTEBOOK + SERVER_NOTEBOOK + SERVER_KERNEL,
        ),
    ],
)
def test_the_longest_time_is_the_sum_of_all_limits(
    checks: list[float], notebooks: list[float], uses_server: bool, expected: float
) -> None:
    assert (NOTEBOOK, SERVER_KERNEL, SERVER_CHECK, SERVER_NOTEBOOK) == (370, 330, 120, 790)  # as the page says
    assert worker_seconds(environments=900, checks=checks, notebooks=notebooks, uses_server=uses_server) == expected
