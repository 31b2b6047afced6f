"""Samples are reduced to lines of limited length without losing a peak, whatever a target has written."""

from pathlib import Path

import pytest

from toolbox.features.notebooks import usage_samples


def read(directory: Path, text: str, end: float = 100) -> dict[str, list[tuple[float, float]]]:
    """Return the points of a CSV file from time 0 to `end`, by column."""
    (directory / "a.csv").write_text(text)
    return {name: list(each.points) for name, each in usage_samples.read(directory / "a.csv", 0, end).items()}


def test_columns_are_read_by_their_names(tmp_path: Path) -> None:
    found = read(tmp_path, "other,gpu0_percent,time,cpu_percent\n9,50,1,100\n9,60,2,150\n")
    assert found == {"gpu0_percent": [(1, 50), (2, 60)], "cpu_percent": [(1, 100), (2, 150)]}


def test_a_peak_among_many_samples_is_kept(tmp_path: Path) -> None:
    rows = "".join(f"{tick / 1000},{7e9 if tick == 31_415 else 5}\n" for tick in range(100_000))
    points = read(tmp_path, f"time,memory_bytes\n{rows}")["memory_bytes"]
    assert (31.415, 7e9) in points
    assert len(points) <= 2 * usage_samples.BINS


def test_unordered_times_are_sorted(tmp_path: Path) -> None:
    rows = "".join(f"{tick * 37 % 100},{tick}\n" for tick in range(100))
    times = [time for time, _ in read(tmp_path, f"time,cpu_percent\n{rows}")["cpu_percent"]]
    assert times == sorted(times)
    assert len(times) == 100


@pytest.mark.parametrize(
    "row",
    [
        "nan,1",
        "1,nan",
        "1,inf",
        "1,-5",
        "1,1e300",
        "1",
        "",
        "x,y",
        "1e300,1",
        "-1,1",
        "1,\x1b[31m",
        "1" * 5000,
    ],
)
def test_what_is_not_a_sample_is_left_out(tmp_path: Path, row: str) -> None:
    assert read(tmp_path, f"time,cpu_percent\n{row}\n2,7\n")["cpu_percent"] == [(2, 7)]


def test_the_nearest_samples_outside_stand_for_the_begin_and_the_end(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time,memory_bytes\n1,5\n9,6\n21,7\n30,8\n")
    series = usage_samples.read(tmp_path / "a.csv", 10, 20)["memory_bytes"]
    assert (list(series.points), series.highest) == ([(10, 6), (20, 7)], 7)


@pytest.mark.parametrize("text", ["", "\n", "a,b\n1,2\n", "cpu_percent\n1\n", "time,evil\n1,2\n", "\x00\xff"])
def test_a_file_without_known_columns_has_no_samples(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text) == {}


def test_a_file_that_is_missing_or_a_folder_has_no_samples(tmp_path: Path) -> None:
    assert usage_samples.read(tmp_path / "none.csv", 0, 1) == {}
    assert usage_samples.read(tmp_path, 0, 1) == {}


def test_a_time_of_no_length_has_its_samples_in_one_interval(tmp_path: Path) -> None:
    assert read(tmp_path, "time,cpu_percent\n0,1\n0,3\n0,2\n", end=0) == {"cpu_percent": [(0, 1), (0, 3)]}


def test_the_rows_of_all_files_of_a_page_are_limited(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time,cpu_percent\n1,1\n2,2\n3,3\n")
    budget = usage_samples.RowBudget(4)
    first, second = (usage_samples.read(tmp_path / "a.csv", 0, 9, budget)["cpu_percent"].points for _ in range(2))
    assert (len(first), len(second)) == (3, 1)
