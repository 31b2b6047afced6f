"""All sources of metrics refuse wrong fields, and name a missing file."""

import importlib
from pathlib import Path

import pytest
from pydantic import ValidationError

VALID: dict[str, dict[str, object]] = {
    "coverage_xml": {"file": "m"},
    "csv_file": {"file": "m", "column": "loss"},
    "json_file": {"file": "m", "path": "a"},
    "junit": {"glob": "m"},
    "log": {"file": "m", "pattern": "x"},
    "xplane": {},
    "yaml_file": {"file": "m", "path": "a"},
}


@pytest.mark.parametrize(
    ("source", "field", "values"),
    [
        ("coverage_xml", "file", ["../x"]),
        ("coverage_xml", "rate", ["lines"]),
        ("coverage_xml", "package", [""]),
        ("junit", "glob", ["../*"]),
        ("junit", "measure", ["time"]),
        ("junit", "case", [""]),
        ("csv_file", "column", [""]),
        ("csv_file", "delimiter", ["", "\n", '"', ",,"]),
        ("csv_file", "aggregate", [None]),
        ("csv_file", "file", ["/x"]),
        ("csv_file", "header", [True]),
        ("json_file", "path", [None, "a[", ""]),
        ("json_file", "file", [3, "../x"]),
        ("json_file", "jsonpath", ["$.a"]),
        ("log", "pattern", ["("]),
        ("xplane", "file", ["../*.pb"]),
        ("xplane", "plane", [None]),
        ("xplane", "line", [1]),
        ("xplane", "device", [0]),
        ("xplane", "event", [""]),
        ("yaml_file", "path", ["a["]),
        *((source, "warmup", [-1]) for source in VALID),
        *((source, "aggregate", ["mode"]) for source in ("json_file", "log", "yaml_file")),
        *((source, "file", ["../x"]) for source in ("log", "yaml_file")),
        *((source, "p", [1]) for source in ("log", "yaml_file")),
    ],
)
def test_a_wrong_field_is_refused_and_named(source: str, field: str, values: list[object]) -> None:
    kind = importlib.import_module(f"toolbox.judges.metrics.{source}").Source
    for value in values:
        with pytest.raises(ValidationError) as caught:
            kind.model_validate({**VALID[source], field: value})
        assert [error["loc"][0] for error in caught.value.errors()] == [field]


@pytest.mark.parametrize("source", ["coverage_xml", "csv_file", "json_file", "log", "yaml_file"])
def test_a_missing_file_is_named(tmp_path: Path, source: str) -> None:
    with pytest.raises(ValueError, match=r"^m does not exist$"):
        importlib.import_module(f"toolbox.judges.metrics.{source}").Source(**VALID[source]).read(tmp_path)
