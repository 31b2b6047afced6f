"""The source `json_file` reads a metric from a JSON file."""

from pathlib import Path
from typing import Any

import pytest

from toolbox.judges.metrics.json_file import Source
from toolbox.matrix.attempt_judgement import NamedSource

DOCUMENT = (
    '{"no_losses": [], "mixed": [1, "x", NaN], '
    '"step": {"time": {"median": 0.25}}, "losses": [3, 1.5], "with.dots": 7, "text": "1", "yes": true, '
    '"none": null, "nan": NaN, "inf": Infinity, "huge": 1e999, "long": 1' + "0" * 400 + "}"
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return the directory of the document."""
    (tmp_path / "metrics.json").write_text(DOCUMENT)
    return tmp_path


@pytest.mark.parametrize(
    ("path", "value"),
    [("step.time.median", 0.25), ("losses[1]", 1.5), ("losses[-1]", 1.5), ("losses[0]", 3.0), ('["with.dots"]', 7.0)],
)
def test_a_number_is_found_by_its_path(directory: Path, path: str, value: float) -> None:
    found = Source(file="metrics.json", path=path).read(directory)
    assert (found, type(found)) == (value, float)


@pytest.mark.parametrize("path", ["text", "yes", "none", "nan", "inf", "huge", "long", "losses", "step", "$"])
def test_a_value_that_is_not_a_finite_number_is_refused(directory: Path, path: str) -> None:
    with pytest.raises(ValueError, match="must be a finite number") as caught:
        Source(file="metrics.json", path=path).read(directory)
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize("path", ["missing", "step.time.mean", "losses[2]", "losses.first", "step.time.median.x"])
def test_a_path_to_no_value_is_named(directory: Path, path: str) -> None:
    with pytest.raises(ValueError, match=r"metrics\.json has no"):
        Source(file="metrics.json", path=path).read(directory)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"not json", b"[" * 100_000, b"{'a': 1}"], ids=range(6))
def test_a_file_that_is_not_json_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "metrics.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"metrics\.json is not JSON"):
        Source(file="metrics.json", path="a").read(tmp_path)


def test_a_file_that_does_not_fit_into_memory_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "huge.json").open("wb") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(ValueError, match=r"huge\.json has more than 268435456 bytes"):
        Source(file="huge.json", path="a").read(tmp_path)


@pytest.mark.parametrize(
    ("spec", "value"),
    [
        ({"aggregate": "mean"}, 2.25),
        ({"aggregate": "last"}, 1.5),
        ({"aggregate": "max", "warmup": 1}, 1.5),
        ({"aggregate": "each"}, (3.0, 1.5)),
    ],
)
def test_a_list_is_reduced_by_its_aggregate(directory: Path, spec: dict[str, Any], value: Any) -> None:
    assert Source(file="metrics.json", path="losses", **spec).read(directory) == value


def test_a_list_without_an_aggregate_says_that_there_is_one(directory: Path) -> None:
    with pytest.raises(
        ValueError, match=r"^losses in metrics\.json must be a finite number, not a list: set `aggregate`"
    ):
        Source(file="metrics.json", path="losses").read(directory)


@pytest.mark.parametrize(
    ("path", "warmup", "message"),
    [
        ("mixed", 0, r"mixed[1] in metrics.json must be a finite number, not 'x'"),
        ("mixed", 2, r"mixed[2] in metrics.json must be a finite number, not nan"),
        ("losses", 2, "losses in metrics.json: 2 numbers were found, and the warm-up of 2 removes all of them"),
        ("no_losses", 0, "no_losses in metrics.json: 0 numbers were found"),
    ],
)
def test_a_list_that_is_not_of_numbers_is_refused(directory: Path, path: str, warmup: int, message: str) -> None:
    with pytest.raises(ValueError, match=r"metrics\.json") as caught:
        Source(file="metrics.json", path=path, aggregate="median", warmup=warmup).read(directory)
    assert str(caught.value) == message


def test_an_aggregate_leaves_a_number_as_it_is(directory: Path) -> None:
    assert Source(file="metrics.json", path="step.time.median", aggregate="sum", warmup=3).read(directory) == 0.25


def test_a_unit_belongs_to_the_metric_and_not_to_its_source() -> None:
    spec = {"source": "json_file", "file": "f", "path": "a", "unit": "s"}
    assert NamedSource.parse(spec).source == Source(file="f", path="a")
