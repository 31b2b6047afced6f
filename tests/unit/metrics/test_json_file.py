"""A metric from a JSON file."""

from pathlib import Path

import pytest

from toolbox.metrics.json_file import Source
from toolbox.model.errors import ConfigurationError
from toolbox.orchestration import judging

DOCUMENT = (
    '{"step": {"time": {"median": 0.25}}, "losses": [3, 1.5], "with.dots": 7, "text": "1", "yes": true, '
    '"none": null, "nan": NaN, "inf": Infinity, "huge": 1e999, "long": 1' + "0" * 400 + "}"
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where the document is."""
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
def test_what_is_no_finite_number_is_refused_with_what_it_is(directory: Path, path: str) -> None:
    with pytest.raises(ValueError, match="a number was expected") as caught:
        Source(file="metrics.json", path=path).read(directory)
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize("path", ["missing", "step.time.mean", "losses[2]", "losses.first", "step.time.median.x"])
def test_a_path_that_leads_nowhere_is_named(directory: Path, path: str) -> None:
    with pytest.raises(ValueError, match=r"metrics\.json has no"):
        Source(file="metrics.json", path=path).read(directory)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"not json", b"[" * 100_000, b"{'a': 1}"], ids=range(6))
def test_a_file_that_is_no_json_is_said_to_be_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "metrics.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"metrics\.json is not JSON"):
        Source(file="metrics.json", path="a").read(tmp_path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"metrics\.json is not there"):
        Source(file="metrics.json", path="a").read(tmp_path)


def test_a_text_that_is_no_path_is_a_fault_of_the_configuration(directory: Path) -> None:
    with pytest.raises(ConfigurationError):
        Source(file="metrics.json", path="a[").read(directory)


@pytest.mark.parametrize("spec", [{"path": None}, {"file": 3}, {"jsonpath": "$.a"}])
def test_a_wrong_field_is_refused_and_named(spec: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(spec))):
        judging.parse_metric({"source": "json_file", "file": "f", "path": "a", **spec})


def test_a_unit_belongs_to_the_metric_and_not_to_its_source() -> None:
    spec = {"source": "json_file", "file": "f", "path": "a", "unit": "s"}
    assert judging.parse_metric(spec) == Source(file="f", path="a")
