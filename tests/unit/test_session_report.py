"""A run of all tests says what it skips, how long it still takes, and which test fails as soon as it fails."""

from __future__ import annotations

import pytest

from tests import session_report
from tests.session_report import Progress

pytest_plugins = ["pytester"]


@pytest.mark.parametrize(("is_there", "lines"), [(True, []), (False, ["skips the tests of x: apt-get install x"])])
def test_a_missing_service_is_named_with_its_remedy(is_there: bool, lines: list[str]) -> None:
    assert session_report.missing([("the tests of x", lambda: is_there, "apt-get install x")]) == lines


def test_the_time_left_is_that_of_the_kinds_of_tests_that_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_report, "_WEIGHTS", {"unit": 0.05, "live": 6.0})
    tests = [f"tests/unit/test_x.py::test[{number}]" for number in range(200)]
    times = iter([0.0, *([1.0] * 99), 12.0, *([13.0] * 99), 60.0])
    progress = Progress([*tests, "tests/live/test_y.py::test"], clock=lambda: next(times))
    lines = [line for line in map(progress.end, tests) if line]
    # 100 tests of 0.05 s took 12 s, so 100 others and one of 6 s take 26.4 s.
    assert lines == ["100 of 201 tests; about 26 s left", "200 of 201 tests; about 36 s left"]


def test_failed_tests_are_printed_when_they_fail(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_good(): pass\ndef test_bad(): assert 0\ndef test_other(): pass\n")
    result = pytester.runpytest_inprocess("-p", "tests.session_report")
    result.stdout.fnmatch_lines(["*::test_bad failed", "*2 passed*"])
    result.stdout.no_fnmatch_line("F*")
