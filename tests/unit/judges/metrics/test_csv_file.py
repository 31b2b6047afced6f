"""The source `csv_file` reads a metric from a column of a CSV file."""

from pathlib import Path
from typing import Any

import pytest

from toolbox.judges.metrics.csv_file import Source


def read(directory: Path, content: bytes, **spec: Any) -> float | tuple[float, ...]:
    """Return the metric that the column `loss` of a file with this content gives."""
    (directory / "m.csv").write_bytes(content)
    return Source(file="m.csv", **{"column": "loss", "aggregate": "each", **spec}).read(directory)


@pytest.mark.parametrize(
    ("content", "spec"),
    [
        (b"step,loss\n0,9\n1,2.5\n2,1e-1\n", {}),
        (b"\xef\xbb\xbfloss\r\n9\r\n2.5\r\n0.1\r\n", {}),
        (b'"step, at", loss\n"a\nb",9\n"c,d", 2.5\n"""",.1', {}),
        (b"step;loss\n0;9\n1;2.5\n2;0.1", {"delimiter": ";"}),
        (b"step,loss\n0,9,\n1,2.5,,\n2,0.1\n", {}),
        (b"loss\tcaf\xe9\n9\t\n2.5\t\xff\n0.1", {"delimiter": "\t"}),
    ],
)
def test_a_column_is_read_by_its_name(tmp_path: Path, content: bytes, spec: dict[str, str]) -> None:
    assert read(tmp_path, content, **spec) == (9.0, 2.5, 0.1)
    assert read(tmp_path, content, **spec, aggregate="max", warmup=1) == 2.5
    assert Source(file="m.csv", column="loss", **spec).read(tmp_path) == 2.5


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"step,loss\n0,1\n1,\n", "m.csv:3: `loss` must be a finite number, not ''"),
        (b"step,loss\n0,1\n1\n", "m.csv:3: `loss` must be a finite number, not ''"),
        (b"loss\n1\n\n2\n", "m.csv:3: `loss` must be a finite number, not ''"),
        (b'step,loss\n"a\nb",1\n1,n/a\n', "m.csv:4: `loss` must be a finite number, not 'n/a'"),
        (b"loss\n1\nnan\n", "m.csv:3: `loss` must be a finite number, not nan"),
        (
            b"step,time,loss\n0,0.5,9\n1,0,160,8\n",
            "m.csv:3 has 4 columns, but the first row has 3: is a comma a decimal point?",
        ),
        (b"step,Loss\n0,1\n", "m.csv has no column `loss`: the columns are step, Loss"),
        (b"loss,loss\n0,1\n", "m.csv has 2 columns `loss`: the columns are loss, loss"),
        (b"", "m.csv has no column `loss`: the first row is empty"),
        (b"loss\n", "`loss` in m.csv: 0 numbers were found"),
        (b'loss\n1\n"2\n', "m.csv:3 is not CSV: unexpected end of data"),
        (b"loss\n" + b"x" * 200_000, "m.csv:2 is not CSV: field larger than field limit (131072)"),
    ],
)
def test_a_row_without_a_number_is_an_error_with_its_line(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=r"^\S") as caught:
        read(tmp_path, content)
    assert str(caught.value) == message


def test_skipped_rows_need_not_be_numbers(tmp_path: Path) -> None:
    assert read(tmp_path, b"loss\nnan\n2\n", warmup=1) == (2.0,)
    with pytest.raises(ValueError, match="2 numbers were found, and the warm-up of 2 removes all"):
        read(tmp_path, b"loss\n1\n2\n", warmup=2)
