"""Series are read from CSV files, and a row that a decimal comma has widened is refused."""

from pathlib import Path

import pytest

from toolbox.ground.model.errors import UsageError
from toolbox.records.results import csv_series


def test_a_row_with_more_columns_than_the_first_row_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("day,took,value\n1,2,3,\n2,0,160,5\n")
    with pytest.raises(UsageError, match=r"a\.csv:3 has more columns than the first row: is a comma a decimal point\?"):
        csv_series.read(file, "value")
    file.write_text("day,took,value\n1,2,3,\n")
    assert csv_series.read(file, "value")["a"].tolist() == [3.0]
