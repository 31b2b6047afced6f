"""The source `coverage_xml` reads the coverage of tests in percent."""

from pathlib import Path
from typing import Any

import pytest

from toolbox.judges.metrics.coverage_xml import Source

COVERAGE_PY = """<?xml version="1.0" ?>
<coverage version="7.6.1" timestamp="1" lines-valid="3" lines-covered="2" line-rate="0.6667" branches-covered="0"
 branches-valid="0" branch-rate="0" complexity="0">
<packages><package name="src.a" line-rate="0.75" branch-rate="0.5" complexity="0"/><package name="." line-rate="1"/>
</packages></coverage>"""
GCOVR = """<?xml version='1.0'?>
<!DOCTYPE coverage SYSTEM 'http://cobertura.sourceforge.net/xml/coverage-04.dtd'>
<coverage line-rate="0.5" branch-rate="0.25"><packages/></coverage>"""


def read(directory: Path, content: str, **spec: Any) -> float:
    """Return the coverage in a file with this content."""
    (directory / "coverage.xml").write_text(content)
    return Source(file="coverage.xml", **spec).read(directory)


@pytest.mark.parametrize(
    ("content", "spec", "percent"),
    [
        (COVERAGE_PY, {}, 200 / 3),
        (COVERAGE_PY, {"package": "src.a"}, 75.0),
        (COVERAGE_PY, {"package": "src.a", "rate": "branch"}, 50.0),
        (COVERAGE_PY, {"package": "."}, 100.0),
        (GCOVR, {}, 50.0),
        (GCOVR, {"rate": "branch"}, 25.0),
    ],
)
def test_the_percentage_is_read(tmp_path: Path, content: str, spec: dict[str, Any], percent: float) -> None:
    assert read(tmp_path, content, **spec) == pytest.approx(percent)


@pytest.mark.parametrize(
    ("content", "spec", "message"),
    [
        (COVERAGE_PY, {"package": "src.b"}, r"has no package `src\.b`: did you mean src\.a"),
        (COVERAGE_PY, {"package": ".", "rate": "branch"}, r"the package `\.` of coverage\.xml does not say"),
        (COVERAGE_PY, {"rate": "branch"}, r"does not say which part of its branches ran"),
        ("<coverage/>", {}, r"does not say which part of its lines ran"),
        ("<coverage line-rate='85'/>", {}, r"does not say which part of its lines ran"),
        ("<coverage line-rate='nan'/>", {}, r"does not say which part of its lines ran"),
        ("<coverage line-rate='0,85'/>", {}, r"does not say which part of its lines ran"),
        (
            "<coverage lines-covered='9' lines-valid='8' line-rate='0.5'/>",
            {},
            r"coverage\.xml counts 9 executed lines, but only 8 lines",
        ),
        ("<html/>", {}, r"is not a Cobertura file: its root is <html>"),
        ("", {}, r"coverage\.xml is not XML"),
        ("<coverage>", {}, r"coverage\.xml is not XML"),
        ("<!DOCTYPE c [<!ENTITY a 'b'>]><coverage/>", {}, r"has declarations in its DTD"),
        ("<!DOCTYPE c [<!ATTLIST coverage line-rate CDATA '1'>]><coverage/>", {}, r"has declarations in its DTD"),
        ("<coverage>" * 200, {}, r"nested too deeply"),
    ],
)
def test_a_file_without_the_rate_is_a_fault(tmp_path: Path, content: str, spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read(tmp_path, content, **spec)


def test_the_message_about_an_unknown_package_is_short(tmp_path: Path) -> None:
    packages = "".join(f"<package name='{number}\x9b31m{'x' * 100_000}'/>" for number in range(20))
    with pytest.raises(ValueError, match="has no package `src`") as error:
        read(tmp_path, f"<coverage>{packages}</coverage>", package="src")
    assert len(str(error.value)) < 10_000
    assert "\x9b" not in str(error.value)
