"""The use of a cell is computed from the samples of the kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolbox.features.notebooks.worker import cell_usage
from toolbox.features.notebooks.worker.cell_usage import Sample
from toolbox.features.notebooks.worker.notebook_results import CellRecord, TestOutcome

SAMPLES = [
    Sample(100.0, 0.0, 1000.0),
    Sample(101.0, 50.0, 2000.0),
    Sample(102.0, 100.0, 5000.0),
    Sample(103.0, 10.0, 3000.0),
]


def usage(started: float | None, seconds: float | None, samples: list[Sample]) -> tuple[float | None, int | None]:
    (record,) = cell_usage.with_usage([CellRecord(1, "a", TestOutcome.PASSED, started, seconds)], samples)
    return record.cpu_seconds, record.peak_memory_bytes


def test_the_cpu_time_of_a_cell_is_its_part_of_the_intervals() -> None:
    cpu_seconds, memory = usage(100.5, 2.0, SAMPLES)
    assert cpu_seconds == pytest.approx(0.25 + 1.0 + 0.05)
    assert memory == 5000


def test_a_cell_between_two_samples_has_the_memory_of_the_next_sample() -> None:
    cpu_seconds, memory = usage(101.2, 0.5, SAMPLES)
    assert cpu_seconds == pytest.approx(0.5)
    assert memory == 5000


def test_cells_before_the_first_sample_have_its_memory() -> None:
    assert usage(98.0, 0.5, SAMPLES) == (None, 1000)
    assert usage(99.0, 0.5, SAMPLES[:1]) == (None, 1000)


def test_a_cell_without_samples_has_no_use() -> None:
    assert usage(100.0, 1.0, []) == (None, None)
    assert usage(200.0, 1.0, SAMPLES) == (None, None)
    assert usage(None, None, SAMPLES) == (None, None)


def test_the_cpu_time_is_unknown_if_a_sample_lacks_it() -> None:
    samples = [*SAMPLES[:2], Sample(102.0, None, 5000.0), SAMPLES[3]]
    assert usage(100.5, 2.0, samples) == (None, 5000)


def test_values_that_are_not_numbers_are_left_out() -> None:
    assert usage(100.0, 1.0, [Sample(100.0, None, None), Sample(101.0, None, None)]) == (None, None)


def test_rows_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "samples.csv"
    path.write_text(
        "time,cpu_percent,memory_bytes,gpu0_percent\n"
        "2.0,50,100,1\n1.0,,inf,\nnan,1,1,1\nx,1,1,1\n,,\n3.0,-1,1e300,5,6,7\n" + "4" * 20_000 + "\n5.0,1",
        encoding="utf-8",
    )
    assert cell_usage.read(path) == [
        Sample(1.0, None, None),
        Sample(2.0, 50.0, 100.0),
        Sample(3.0, None, 1e300),
        Sample(5.0, 1.0, None),
    ]


def test_a_missing_or_wrong_file_has_no_samples(tmp_path: Path) -> None:
    assert cell_usage.read(tmp_path / "missing.csv") == []
    (tmp_path / "other.csv").write_bytes(b'\xff\x00,\n"')
    assert cell_usage.read(tmp_path / "other.csv") == []
