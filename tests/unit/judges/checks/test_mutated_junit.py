"""Seeded mutations of JUnit files: none passes with a sign of a failure, and no sum lacks a test case.

The expectations come from the XML tree of a mutated file, which this test reads without the code under test.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from xml.etree.ElementTree import Element, ParseError, SubElement, fromstring, tostring

import pytest
from defusedxml import ElementTree

from toolbox.ground.model.evidence import Evidence
from toolbox.judges.checks.junit import Check
from toolbox.judges.metrics.junit import Source

DOCUMENT = """<testsuites name="all" tests="6" failures="1" errors="1" time="10">
<testsuite name="outer" tests="4" failures="1" errors="0" skipped="1">
<properties><property name="a" value="b"/></properties>
<testcase classname="o" name="a" time="0.25"/>
<testcase classname="o" name="b" time="1.5"><failure message="no">x</failure></testcase>
<testcase classname="o" name="c"><skipped/></testcase>
<testsuite name="inner" tests="1" failures="0" errors="0"><testcase classname="i" name="d" time="3"/></testsuite>
</testsuite>
<testsuite name="last" tests="2" failures="0" errors="1">
<testcase classname="l" name="e" time="0.5"><error>y</error></testcase>
<testcase classname="l" name="f" time="2"><system-out>text</system-out></testcase>
</testsuite></testsuites>"""
TIMES = {
    "0.25": 0.25,
    "1.5": 1.5,
    "3": 3.0,
    "0.5": 0.5,
    "2": 2.0,
    "0,160": 0.16,
    "12,5": 12.5,
    "1,234.5": 1234.5,
    **dict.fromkeys(["1,234", "1.234,5", "-1", "nan", "inf", "1e999", "", "soon", "1_000", "5 s", "\u0661", None]),
}
COUNTS = ["", " ", "0", "1", " 1 ", "01", "0000000000001", "+1", "-1", "1.0", "1,000", "one", "nan", "\u0661", "9" * 30]
BAD = ("failure", "error")
Mutation = Callable[[random.Random, Element], None]


def with_parents(root: Element, *tags: str) -> list[tuple[Element, Element]]:
    return [(parent, child) for parent in root.iter() for child in parent if child.tag in tags]


def change_a_time(rng: random.Random, root: Element) -> None:
    case, time = rng.choice(list(root.iter("testcase"))), rng.choice(list(TIMES))
    if time is None:
        case.attrib.pop("time", None)
    else:
        case.set("time", time)


def change_a_count(rng: random.Random, root: Element) -> None:
    suite = rng.choice([root, *root.iter("testsuite")])
    suite.set(rng.choice(["failures", "errors"]), rng.choice(COUNTS))


def remove_a_count(rng: random.Random, root: Element) -> None:
    rng.choice([root, *root.iter("testsuite")]).attrib.pop(rng.choice(["failures", "errors"]), None)


def remove_an_element(rng: random.Random, root: Element) -> None:
    parent, child = rng.choice(with_parents(root, "testcase", "testsuite", *BAD, "skipped"))
    parent.remove(child)


def move_a_failure(rng: random.Random, root: Element) -> None:
    places = [root, *root.iter("testsuite"), *root.iter("testcase"), *root.iter("system-out"), *root.iter("properties")]
    if found := with_parents(root, *BAD):
        parent, child = rng.choice(found)
        parent.remove(child)
        rng.choice(places).append(child)


def wrap_a_failure(rng: random.Random, root: Element) -> None:
    if found := with_parents(root, *BAD):
        parent, child = rng.choice(found)
        parent.remove(child)
        SubElement(parent, rng.choice(["result", "failure", "skipped", "flakyFailure"])).append(child)


def skip_a_case(rng: random.Random, root: Element) -> None:
    case = rng.choice(list(root.iter("testcase")))
    if rng.random() < 0.5:
        SubElement(case, "skipped")
    else:
        case.set("status", "notrun")


def copy_a_suite(rng: random.Random, root: Element) -> None:
    parent, child = rng.choice(with_parents(root, "testsuite", "testcase"))
    parent.append(fromstring(tostring(child)))


def keep_only_the_frame(_: random.Random, root: Element) -> None:
    for element in root.iter():
        for child in [child for child in element if child.tag == "testcase"]:
            element.remove(child)


TREES: list[Mutation] = [
    change_a_time, change_a_time, change_a_count, remove_a_count, remove_an_element, move_a_failure, wrap_a_failure,
    skip_a_case, copy_a_suite, keep_only_the_frame,
]  # fmt: skip


def mutated(rng: random.Random) -> str:
    """Return a file after one to three changes of its tree, and perhaps a change of its text."""
    root: Element = ElementTree.fromstring(DOCUMENT)
    if rng.random() < 0.5:  # a suite that passed
        for parent, child in with_parents(root, *BAD):
            parent.remove(child)
        for suite in root.iter():
            suite.attrib.update({name: "0" for name in ("failures", "errors") if name in suite.attrib})
    for mutation in rng.choices(TREES, k=rng.randint(1, 3)):
        if next(root.iter("testcase"), None) is not None:
            mutation(rng, root)
    text = tostring(root, "unicode")
    if rng.random() < 0.15:
        return text[: rng.randrange(len(text))]
    return text.replace("testsuites", "results") if rng.random() < 0.05 else text


def is_unclear(text: str | None) -> bool:
    """Return whether the count of an attribute is not clearly zero."""
    return bool(text and text.strip().strip("0"))


def may_pass(root: Element) -> bool:
    """Return whether a file has executed test cases and no sign of a failure."""
    suites = [root, *root.iter("testsuite")]
    if root.tag != "testsuites" or any(
        is_unclear(suite.get(name)) for suite in suites for name in ("failures", "errors")
    ):
        return False
    hidden = {id(inner) for tag in ("skipped", "flakyFailure") for outer in root.iter(tag) for inner in outer.iter()}
    if any(id(element) not in hidden for tag in BAD for element in root.iter(tag)):
        return False
    return any(was_executed(case) for case in root.iter("testcase"))


def was_executed(case: Element) -> bool:
    is_skipped = next(case.iter("skipped"), None) is not None or case.get("status") == "notrun"
    return not is_skipped or any(next(case.iter(tag), None) is not None for tag in BAD)


@pytest.mark.parametrize("seed", range(250))
def test_a_mutated_file_passes_only_without_a_sign_of_a_failure(tmp_path: Path, seed: int) -> None:
    text = mutated(random.Random(seed))
    (tmp_path / "junit.xml").write_text(text)
    passed = Check(glob="junit.xml").judge(Evidence(tmp_path, {})).passed
    try:
        seconds = Source(glob="junit.xml").read(tmp_path)
    except ValueError as error:
        seconds, fault = None, str(error)
    try:
        root: Element = ElementTree.fromstring(text)
    except ParseError:
        assert (passed, seconds) == (False, None)
        return
    assert not passed or may_pass(root)
    cases = list(root.iter("testcase"))
    times = [TIMES[case.get("time")] for case in cases]
    if seconds is not None:
        assert any(map(was_executed, cases))
        assert all(time is not None or not was_executed(case) for case, time in zip(cases, times, strict=True))
        assert seconds == pytest.approx(sum(filter(None, times)))
    else:
        assert "test case" in fault or "is not a" in fault


def test_the_file_itself_and_a_passing_one_are_judged(tmp_path: Path) -> None:
    (tmp_path / "junit.xml").write_text(DOCUMENT)
    check = Check(glob="junit.xml")
    assert not check.judge(Evidence(tmp_path, {})).passed
    assert sum(may_pass_seed(seed) for seed in range(250)) > 20


def may_pass_seed(seed: int) -> bool:
    try:
        return may_pass(ElementTree.fromstring(mutated(random.Random(seed))))
    except ParseError:
        return False
