"""Test cases are read from the JUnit files of several tools, and hostile files are refused."""

import subprocess
import sys
from pathlib import Path

import pytest

from toolbox.ground.model.cases import CaseOutcome, CaseResult
from toolbox.records.runs import junit_files
from toolbox.records.runs.junit_files import JUnitFault

PASSED, FLAKY, FAILED, ERROR, SKIPPED = CaseOutcome

GTEST = """<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="4" failures="1" disabled="1" errors="0" time="0.5" name="AllTests">
  <testsuite name="Maths" tests="4" failures="1" disabled="1" skipped="1" errors="0" time="0.5">
    <testcase name="Adds" status="run" result="completed" time="0.1" classname="Maths" />
    <testcase name="Divides" status="run" result="completed" time="0.2" classname="Maths">
      <failure message="a.cc:1&#x0A;Expected: 1" type=""><![CDATA[a.cc:1
Expected: 1]]></failure>
      <failure message="a.cc:2" type=""><![CDATA[a.cc:2]]></failure>
    </testcase>
    <testcase name="DISABLED_Roots" status="notrun" result="suppressed" time="0." classname="Maths" />
    <testcase name="Skips" status="run" result="skipped" time="0." classname="Maths">
      <skipped message="no device"><![CDATA[no device]]></skipped>
    </testcase>
  </testsuite>
</testsuites>
"""
SUREFIRE = """<testsuite xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" version="3.0" name="org.A" time="1,234.5"
  tests="3" errors="0" skipped="0" failures="1" flakes="1">
  <properties><property name="java.version" value="21"/></properties>
  <testcase name="slow" classname="org.A" time="1,234.5"/>
  <testcase name="sometimes" classname="org.A" time="0.1">
    <flakyFailure message="once" type="AssertionError"><stackTrace><![CDATA[once
at org.A]]></stackTrace><system-out>noise</system-out></flakyFailure>
  </testcase>
  <testcase name="never" classname="org.A" time="0.2">
    <failure message="always" type="AssertionError">at org.A.never</failure>
    <rerunFailure message="again" type="AssertionError"><stackTrace>again</stackTrace></rerunFailure>
  </testcase>
</testsuite>
"""
NESTED = """<testsuites><testsuite name="outer" failures="1"><testsuite name="inner" failures="1">
<testcase name="a"><failure>no attribute</failure></testcase></testsuite><testcase name="b"/>
</testsuite></testsuites>"""


def read(directory: Path, content: str | bytes) -> list[CaseResult]:
    """Return the test cases of a file with this content."""
    (directory / "junit.xml").write_bytes(content if isinstance(content, bytes) else content.encode())
    return list(junit_files.read(directory, "junit.xml"))


def outcomes(cases: list[CaseResult]) -> dict[str, CaseOutcome]:
    """Return the outcome of each test case, by its title."""
    return {case.title: case.outcome for case in cases}


def test_the_file_that_pytest_writes_is_read(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import pytest\n@pytest.fixture\ndef broken(): raise RuntimeError('no room')\n"
        "def test_passes(): pass\ndef test_fails(): assert 1 == 2\ndef test_errs(broken): pass\n"
        "@pytest.mark.skip(reason='later')\ndef test_skips(): pass\n"
        "@pytest.mark.xfail\ndef test_xfails(): assert 0\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml=junit.xml", "test_it.py"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 1
    cases = {case.name: case for case in junit_files.read(tmp_path, "junit.xml")}
    assert {name: case.outcome for name, case in cases.items()} == {
        "test_passes": PASSED,
        "test_fails": FAILED,
        "test_errs": ERROR,
        "test_skips": SKIPPED,
        "test_xfails": SKIPPED,
    }
    assert cases["test_fails"].message == "assert 1 == 2"
    assert "def test_fails" in cases["test_fails"].text
    assert cases["test_passes"].suite == "test_it"
    assert cases["test_passes"].seconds is not None


def test_googletest_marks_disabled_tests_by_an_attribute(tmp_path: Path) -> None:
    cases = read(tmp_path, GTEST)
    assert outcomes(cases) == {
        "Maths.Adds": PASSED,
        "Maths.Divides": FAILED,
        "Maths.DISABLED_Roots": SKIPPED,
        "Maths.Skips": SKIPPED,
    }
    assert cases[1].message == "a.cc:1 Expected: 1"
    assert cases[1].text == "a.cc:1\nExpected: 1\na.cc:2"


def test_surefire_distinguishes_flaky_from_failed_tests(tmp_path: Path) -> None:
    cases = read(tmp_path, SUREFIRE)
    assert outcomes(cases) == {"org.A.slow": PASSED, "org.A.sometimes": FLAKY, "org.A.never": FAILED}
    assert cases[0].seconds == 1234.5
    assert cases[1].message == "once"
    assert cases[2].message == "always"


def test_suites_may_be_nested(tmp_path: Path) -> None:
    assert outcomes(read(tmp_path, NESTED)) == {"inner.a": FAILED, "outer.b": PASSED}


def test_a_namespace_is_ignored(tmp_path: Path) -> None:
    assert outcomes(read(tmp_path, '<testsuite xmlns="urn:x"><testcase name="a"/></testsuite>')) == {"a": PASSED}


ITSELF = "(the suite itself)"
SUITE = '<testsuite name="s"><testcase name="a"/></testsuite>'


@pytest.mark.parametrize(
    ("content", "itself"),
    [
        ('<testsuite name="s" failures="0" errors="1"><testcase name="a"/></testsuite>', {f"s.{ITSELF}": ERROR}),
        ('<testsuite name="s" failures="0000000001"><testcase name="a"/></testsuite>', {f"s.{ITSELF}": FAILED}),
        (
            '<testsuite name="s" failures="1" errors="1"><testcase name="a"/></testsuite>',
            {f"s.{ITSELF}": FAILED, f"s.{ITSELF} #2": ERROR},
        ),
        ('<testsuite name="s"><error>trace</error><testcase name="a"/></testsuite>', {f"s.{ITSELF}": ERROR}),
        ('<testsuite name="s"><failure>trace</failure><testcase name="a"/></testsuite>', {f"s.{ITSELF}": FAILED}),
        ('<testsuite name="s"><testcase name="a"/><error><error/></error></testsuite>', {f"s.{ITSELF}": ERROR}),
        ('<testsuite name="s"><testcase name="a"/><log><error/></log></testsuite>', {f"s.{ITSELF}": ERROR}),
        (f'<testsuites failures="1">{SUITE}</testsuites>', {ITSELF: FAILED}),
        (f"<testsuites><error/>{SUITE}</testsuites>", {ITSELF: ERROR}),
        (
            '<testsuites failures="1"><testsuite name="s" failures="1"><testcase name="a"/></testsuite></testsuites>',
            {f"s.{ITSELF}": FAILED},
        ),
    ],
)  # fmt: skip
def test_a_suite_that_failed_without_a_failed_case_gets_a_case_of_its_own(
    tmp_path: Path, content: str, itself: dict[str, CaseOutcome]
) -> None:
    assert outcomes(read(tmp_path, content)) == {"s.a": PASSED, **itself}


def test_failures_that_a_suite_does_not_name_are_a_case_beside_those_that_it_names(tmp_path: Path) -> None:
    content = '<testsuite name="s" failures="3"><testcase name="a"><failure/></testcase></testsuite>'
    named, itself = read(tmp_path, content)
    assert (named.outcome, itself.outcome) == (FAILED, FAILED)
    assert itself.message == "the suite counts 3 failures, but its test cases have 1"


@pytest.mark.parametrize(
    "content",
    [
        '<testsuite failures="1"><testcase name="a"><error/></testcase></testsuite>',
        '<testsuite failures="2"><testcase name="a"><failure/><failure/></testcase></testsuite>',
        '<testsuite failures="1" errors="1"><testcase name="a"><failure/><error/></testcase></testsuite>',
        '<testsuite failures="1"><testcase name="a" status="failed"/></testsuite>',
        '<testsuite failures="1" errors=""><testcase name="a"><failure><error/></failure></testcase></testsuite>',
        '<testsuite tests="9" failures="0"><testcase name="a"/></testsuite>',
    ],
)  # fmt: skip
def test_tools_count_failures_in_different_ways(tmp_path: Path, content: str) -> None:
    assert list(outcomes(read(tmp_path, content))) == ["a"]


def test_a_failure_counts_at_any_depth_of_its_test_case(tmp_path: Path) -> None:
    content = "<testsuite><testcase name='a'><result><failure>1 != 2</failure></result></testcase></testsuite>"
    (case,) = read(tmp_path, content)
    assert (case.outcome, case.message) == (FAILED, "1 != 2")


def test_cases_with_the_same_name_are_numbered_across_files(tmp_path: Path) -> None:
    for name in ("a.xml", "b.xml"):
        (tmp_path / name).write_text('<testsuite name="s"><testcase name="t"/></testsuite>')
    assert [case.name for case in junit_files.read(tmp_path, "*.xml")] == ["t", "t #2"]


@pytest.mark.parametrize(
    ("time", "seconds"),
    [
        ("0,160", 0.16),
        ("12,5", 12.5),
        ("1234,567", 1234.567),
        ("1,234.5", 1234.5),
        ("1,234,567.8", 1234567.8),
        ("1e-05", 1e-05),
        (" .5 ", 0.5),
        ("0.", 0.0),
    ],
)
def test_a_duration_is_read_with_the_separators_of_the_tool(tmp_path: Path, time: str, seconds: float) -> None:
    (case,) = read(tmp_path, f'<testsuite><testcase name="t" time="{time}"/></testsuite>')
    assert case.seconds == seconds


UNKNOWN = [
    "-1",
    "nan",
    "inf",
    "1e300",
    "soon",
    "",
    "1,234",
    "1.234,5",
    "1,23,4",
    "1_000",
    "1 234",
    "\u0661",
    "5us",
    "0x10",
]


@pytest.mark.parametrize("time", UNKNOWN)
def test_a_wrong_duration_is_unknown(tmp_path: Path, time: str) -> None:
    (case,) = read(tmp_path, f'<testsuite><testcase name="t" time="{time}"/></testsuite>')
    assert case.seconds is None


def test_hostile_names_and_texts_are_short_and_printable(tmp_path: Path) -> None:
    name, text = "a\u202eb" + "x" * 10_000, "y" * 3_000_000 + "the end"
    (case,) = read(tmp_path, f'<testsuite><testcase name="{name}"><failure>{text}</failure></testcase></testsuite>')
    assert case.name.startswith("abx")
    assert len(case.name) == 300
    assert len(case.text) < 5000
    assert case.text.endswith("the end")
    assert len(case.message) == 300


@pytest.mark.parametrize(
    ("content", "message", "line"),
    [
        (b"", "junit.xml is empty: the suite ended before it wrote its results", None),
        (b" \n", "junit.xml:2 is not XML: no element found: line 2, column 0", 2),
        (b"<testsuite>\n<testcase name='a'/>", "junit.xml:2 is not XML: no element found: line 2, column 20", 2),
        (b"OK", "junit.xml:1 is not XML: syntax error: line 1, column 0", 1),
        (b"<html/>", "junit.xml is not a JUnit file: its root is <html>, not <testsuites> or <testsuite>", None),
        (b'<!DOCTYPE x SYSTEM "/etc/passwd"><testsuite/>', "junit.xml has a DTD or an entity, which", None),
        (b'<!DOCTYPE x [<!ENTITY a "b">]><testsuite>&a;</testsuite>', "junit.xml has a DTD or an entity, which", None),
        (b"<testsuite>" * 60 + b"</testsuite>" * 60, "elements are nested more than 50 deep", None),
        (b'<?xml version="1.0" encoding="klingon"?><testsuite/>', "unknown encoding", None),
        (b"<testsuite><testcase><testcase/></testcase></testsuite>", "a <testcase> is inside another", None),
        (b"<testsuite><testcase><testsuite/></testcase></testsuite>", "a <testsuite> is inside a <testcase>", None),
        (b"<testsuites failures='-1'/>", "`failures` of a suite is '-1', not a number of test cases", None),
        (b"<testsuite errors='one'/>", "`errors` of a suite is 'one', not a number of test cases", None),
        (b"<testsuite failures='1.0'/>", "`failures` of a suite is '1.0', not a number of test cases", None),
    ],
)
def test_a_broken_file_is_a_fault(tmp_path: Path, content: bytes, message: str, line: int | None) -> None:
    with pytest.raises(JUnitFault) as caught:
        read(tmp_path, content)
    assert message in str(caught.value)
    assert (caught.value.file, caught.value.line) == ("junit.xml", line)


def test_no_file_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(JUnitFault, match=r"^no file matches \*\.xml: the suite has written no JUnit file$"):
        list(junit_files.read(tmp_path, "*.xml"))


def test_too_many_cases_are_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(junit_files, "MAX_CASES", 2)
    with pytest.raises(JUnitFault, match="more than 2 test cases"):
        read(tmp_path, f"<testsuite>{'<testcase/>' * 3}</testsuite>")


def test_too_large_a_file_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "junit.xml").open("wb") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(JUnitFault, match=r"junit\.xml has more than 134217728 bytes"):
        list(junit_files.read(tmp_path, "junit.xml"))


def test_a_report_counts_all_cases_and_keeps_the_first_failures(tmp_path: Path) -> None:
    cases = "".join(f'<testcase name="t{number}" time="0.5"><failure/></testcase>' for number in range(60))
    (tmp_path / "junit.xml").write_text(f"<testsuite>{cases}<testcase name='p' time='0'/></testsuite>")
    report = junit_files.report(tmp_path, "junit.xml", [FAILED])
    assert (report.counts, report.seconds, report.failed) == ({FAILED: 60, PASSED: 1}, 30.0, 60)
    assert [case.name for case in report.failures] == [f"t{number}" for number in range(50)]


@pytest.mark.parametrize(("case", "seconds"), [("<skipped/>", 0.5), ("", None)])
def test_the_sum_of_durations_is_unknown_if_a_test_case_that_ran_has_none(
    tmp_path: Path, case: str, seconds: float | None
) -> None:
    cases = f"<testcase name='a' time='0.5'/><testcase name='b'>{case}</testcase><testcase name='c' time='0'/>"
    (tmp_path / "junit.xml").write_text(f"<testsuite>{cases}</testsuite>")
    assert junit_files.report(tmp_path, "junit.xml", []).seconds == (0.5 if seconds else None)


def test_written_test_cases_are_read_again(tmp_path: Path) -> None:
    cases = [
        CaseResult("s", "passed", PASSED, 0.25),
        CaseResult("s", "flaky", FLAKY, None, "once", "text"),
        CaseResult("", "failed", FAILED, 1.5, "1 != 2", "line 1\n  line 2 ]]> <x/> &amp;"),
        CaseResult("s", "error", ERROR, None, "gone", "gone"),
        CaseResult("s", "skipped", SKIPPED, None, "no device"),
    ]
    junit_files.write(tmp_path / "junit.xml", cases)
    assert list(junit_files.read(tmp_path, "junit.xml")) == cases


def test_a_remark_on_a_test_case_that_passed_is_kept(tmp_path: Path) -> None:
    cases = [CaseResult("s", "a", PASSED, 1.0, "nothing < compared"), CaseResult("s", "b", FAILED, 1.0, "x", "x")]
    junit_files.write(tmp_path / "junit.xml", cases)
    assert list(junit_files.read(tmp_path, "junit.xml")) == cases


def test_characters_that_xml_does_not_allow_are_replaced(tmp_path: Path) -> None:
    hostile = "\x00\x1b\ud800\uffff"
    junit_files.write(tmp_path / "junit.xml", [CaseResult(hostile, hostile, FAILED, None, hostile, hostile)])
    (case,) = junit_files.read(tmp_path, "junit.xml")
    assert {case.suite, case.name, case.message, case.text} == {"\ufffd" * 4}


def test_other_properties_are_no_remarks(tmp_path: Path) -> None:
    other = '<properties><property name="remark" value="x"/></properties>'
    content = f'<testsuite>{other}<testcase name="a">{other.replace("remark", "id")}</testcase></testsuite>'
    assert [case.message for case in read(tmp_path, content)] == [""]
