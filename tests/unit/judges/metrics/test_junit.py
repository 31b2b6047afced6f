"""The source `junit` reads durations and counts from JUnit files."""

from pathlib import Path
from typing import Any

import pytest

from toolbox.judges.metrics.junit import Source

DOCUMENT = """<testsuite name="m">
<testcase classname="m" name="fast" time="0.5"/><testcase classname="m" name="slow[1]" time="2.5"/>
<testcase classname="m" name="left_out"><skipped/></testcase><testcase classname="m" name="untimed"/>
<testcase classname="m" name="broken" time="1"><failure/></testcase></testsuite>"""


@pytest.fixture(autouse=True)
def _document(tmp_path: Path) -> None:
    (tmp_path / "junit.xml").write_text(DOCUMENT)


@pytest.mark.parametrize(
    ("spec", "value"),
    [
        ({"measure": "tests"}, 5.0),
        ({"measure": "passed"}, 3.0),
        ({"measure": "failed"}, 1.0),
        ({"measure": "flaky"}, 0.0),
        ({"case": "m.slow[1]"}, 2.5),
        ({"case": "*.slow*"}, 2.5),
    ],
)
def test_each_measure_is_read(tmp_path: Path, spec: dict[str, Any], value: float) -> None:
    assert Source(glob="*.xml", **spec).read(tmp_path) == value


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("m.slow", r"^0 test cases match `m\.slow`, but exactly 1 must match: did you mean m\.slow\[1\]"),
        ("m.*", r"^5 test cases match"),
        ("m.left_out", r"^the test case m\.left_out was skipped$"),
        ("m.untimed", r"^the test case m\.untimed has no usable duration$"),
    ],
)
def test_a_case_that_did_not_run_is_a_fault(tmp_path: Path, case: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Source(glob="*.xml", case=case).read(tmp_path)


def test_the_sum_needs_the_duration_of_each_test_case_that_ran(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^the test case m\.untimed has no usable duration$"):
        Source(glob="*.xml").read(tmp_path)
    timed = DOCUMENT.replace('name="untimed"', 'name="timed" time="0,160"')
    (tmp_path / "junit.xml").write_text(timed)
    assert Source(glob="*.xml").read(tmp_path) == pytest.approx(4.16)
    (tmp_path / "more.xml").write_text(DOCUMENT.replace('time="2.5"', 'time="1,234"'))
    with pytest.raises(ValueError, match=r"^the test case m\.slow\[1\] #2 \(and 1 more\) has no usable duration$"):
        Source(glob="*.xml").read(tmp_path)


@pytest.mark.parametrize("measure", ["seconds", "passed", "failed", "error", "flaky"])
@pytest.mark.parametrize("content", ["<testsuites/>", "<testsuite><testcase><skipped/></testcase></testsuite>"])
def test_files_in_which_no_test_case_ran_measure_nothing(tmp_path: Path, content: str, measure: Any) -> None:
    (tmp_path / "junit.xml").write_text(content)
    with pytest.raises(ValueError, match=r"^no test case was executed in the files that match \*\.xml \("):
        Source(glob="*.xml", measure=measure).read(tmp_path)


def test_missing_files_are_a_fault(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no file matches"):
        Source(glob="other/*.xml").read(tmp_path)


def test_one_case_has_only_a_duration() -> None:
    with pytest.raises(ValueError, match="only `measure: seconds` is possible"):
        Source(glob="*.xml", case="m.fast", measure="passed")
