"""Reads the test cases of JUnit files, which a repository under test has written. Checks write such files too.

The files may contain anything. They are parsed as a stream, without DTDs and entities, and with limits for the number
of files and test cases, and for the lengths of names and texts. A file that is missing, empty or broken raises a
`JUnitFault`: it never counts as a file without failures.

There is no standard for these files. This module reads what pytest, unittest-xml-reporting, GoogleTest, Maven Surefire
and Jenkins write:

- Suites may be nested, and the root may be a suite. Namespaces are ignored.
- `failure`, `error` and `skipped` are children of a test case. GoogleTest writes several `failure` elements for one
  test case, and marks disabled test cases only by the attributes `status` and `result`.
- Surefire writes `flakyFailure` and `flakyError` for a test case that passed when it was repeated, and `rerunFailure`
  and `rerunError` beside the `failure` of a test case that never passed.
- A property `remark` of a test case that passed is shown beside the test case. Pytest writes properties of test cases
  with `record_property`.
- A suite whose set-up failed may have a `failure` or `error` of its own. This module then adds a test case for the
  suite, and also if the attributes of the suite count more failures or errors than its test cases have. The attribute
  `tests` is not compared with the test cases, because Catch2 and doctest count assertions in it.
- The separators in `time` depend on the locale of the tool: Surefire writes `1,234.5`, and TestNG `0,160` in German. A
  text with two meanings, such as `1,234`, is not a duration.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final
from xml.etree.ElementTree import Element, ParseError, SubElement, tostring

from toolbox.ground.model.cases import FAIL_ON, CaseOutcome, CaseReport, CaseResult
from toolbox.ground.model.foreign_text import clean, replace_unsafe
from toolbox.ground.model.text import abbreviated, truncate
from toolbox.ground.system import filesystem
from toolbox.records.runs.evidence_files import matching, readable

MAX_FILES: Final = 10_000
MAX_CASES: Final = 200_000
MAX_FAILURES: Final = 50  # failures of a report, which the journal contains
_LARGEST_FILE: Final = 1 << 27  # bytes
_CHUNK: Final = 1 << 20  # bytes; the parser reads an unfinished attribute again with each chunk
_DEEPEST: Final = 50
_LONGEST_NAME: Final = 300  # characters
_LONGEST_MESSAGE: Final = 300
_HEAD, _TAIL = 1000, 3000  # characters of the text of a failure: its beginning and its end
_MAX_SECONDS: Final = 1e9
_REMARK: Final = "remark"  # the property of a test case that passed, with what a person must know about it
_SECONDS: Final = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_SECONDS_WITH_THOUSANDS: Final = re.compile(r"[1-9][0-9]{0,2}(?:,[0-9]{3})+\.[0-9]+")
_SECONDS_WITH_DECIMAL_COMMA: Final = re.compile(r"(?![1-9][0-9]{0,2},[0-9]{3}\Z)[0-9]+,[0-9]+")
_COUNT: Final = re.compile(r"[0-9]{1,18}")
_SUITES: Final = frozenset({"testsuites", "testsuite"})
_SUITE_ITSELF: Final = "(the suite itself)"
_OUTCOMES: Final[Mapping[str, CaseOutcome]] = {
    "failure": CaseOutcome.FAILED,
    "error": CaseOutcome.ERROR,
    "skipped": CaseOutcome.SKIPPED,
    **dict.fromkeys(("flakyFailure", "flakyError", "rerunFailure", "rerunError", "rerun"), CaseOutcome.FLAKY),
}
_STATUSES: Final[Mapping[str, CaseOutcome]] = {
    **dict.fromkeys(("notrun", "skipped", "suppressed", "disabled", "ignored"), CaseOutcome.SKIPPED),
    **dict.fromkeys(("fail", "failed", "failure"), CaseOutcome.FAILED),
    **dict.fromkeys(("error", "broken", "aborted", "crashed", "timeout", "timedout"), CaseOutcome.ERROR),
}
_DECLARED: Final[Mapping[CaseOutcome, str]] = {CaseOutcome.FAILED: "failures", CaseOutcome.ERROR: "errors"}
_TAGS: Final[Mapping[CaseOutcome, str]] = {
    CaseOutcome.FLAKY: "flakyFailure",
    CaseOutcome.FAILED: "failure",
    CaseOutcome.ERROR: "error",
    CaseOutcome.SKIPPED: "skipped",
}
_NO_XML: Final = re.compile("[\ufffe\uffff]")  # not in XML 1.0, besides control characters (section 2.2)
_WORST: Final = (CaseOutcome.ERROR, CaseOutcome.FAILED, CaseOutcome.SKIPPED, CaseOutcome.FLAKY)


class JUnitFault(ValueError):
    """The test cases cannot be read.

    Args:
        file: the file with the fault, relative to the directory; empty if there is no file.
        line: the line of the fault; None if unknown.
    """

    def __init__(self, message: str, file: str = "", line: int | None = None) -> None:
        super().__init__(message)
        self.file = file
        self.line = line


def read(directory: Path, glob: str, *, is_partial: bool = False) -> Iterator[CaseResult]:
    """Yield the test cases of all files that match a pattern, file by file.

    Args:
        is_partial: whether the suite did not end by itself. Then a file may be empty or end early, and its complete
            test cases are read.

    Raises:
        JUnitFault: no file matches, a file is broken, or there are too many files or test cases.
    """
    files = matching(directory, glob)
    if not files:
        raise JUnitFault(f"no file matches {glob}: the suite has written no JUnit file")
    if len(files) > MAX_FILES:
        raise JUnitFault(f"{len(files)} files match {glob}, but at most {MAX_FILES} are read")
    seen: Counter[tuple[str, str]] = Counter()
    read_file = _complete_cases if is_partial else _cases
    cases = (case for path in files for case in read_file(directory, path.relative_to(directory).as_posix()))
    for number, case in enumerate(cases, start=1):
        if number > MAX_CASES:
            raise JUnitFault(f"the files that match {glob} have more than {MAX_CASES} test cases")
        seen[case.suite, case.name] += 1
        repeats = seen[case.suite, case.name]
        yield case if repeats == 1 else replace(case, name=f"{case.name} #{repeats}")


def report(directory: Path, glob: str, fail_on: Collection[CaseOutcome], *, is_partial: bool = False) -> CaseReport:
    """Count the test cases of all files that match a pattern.

    Args:
        is_partial: as in `read`.

    Raises:
        JUnitFault: see `read`.
    """
    counts: Counter[CaseOutcome] = Counter()
    failures: list[CaseResult] = []
    seconds: float | None = 0.0
    for case in read(directory, glob, is_partial=is_partial):
        counts[case.outcome] += 1
        seconds = None if seconds is None or case.lacks_seconds else seconds + (case.seconds or 0.0)
        if case.outcome in fail_on and len(failures) < MAX_FAILURES:
            failures.append(replace(case, text=""))
    total = None if seconds is None else round(seconds, 6)
    return CaseReport(glob, dict(counts), tuple(fail_on), total, tuple(failures), is_partial)


def write(file: Path, cases: Iterable[CaseResult]) -> None:
    """Write test cases to a JUnit file, from which `read` returns them."""
    suite = Element("testsuite")
    for case in cases:
        seconds = {"time": f"{case.seconds:.6f}"} if case.seconds is not None else {}
        element = SubElement(suite, "testcase", {"classname": _xml(case.suite), "name": _xml(case.name), **seconds})
        if (tag := _TAGS.get(case.outcome)) is not None:
            SubElement(element, tag, {"message": _xml(case.message)}).text = _xml(case.text)
        elif case.message:
            remark = {"name": _REMARK, "value": _xml(case.message)}
            SubElement(SubElement(element, "properties"), "property", remark)
    filesystem.write_bytes(file, tostring(suite, "utf-8", xml_declaration=True))


def _xml(text: str) -> str:
    """Return a text without the characters that XML 1.0 does not allow."""
    return _NO_XML.sub("\ufffd", replace_unsafe(text))


def _complete_cases(directory: Path, file: str) -> Iterator[CaseResult]:
    """Yield the test cases of one file before its first fault."""
    with contextlib.suppress(JUnitFault):
        yield from _cases(directory, file)


def _cases(directory: Path, file: str) -> Iterator[CaseResult]:
    """Yield the test cases of one file."""
    from defusedxml import DefusedXmlException
    from defusedxml.ElementTree import XMLParser

    shown = truncate(clean(file), _LONGEST_NAME)
    target = _Target()
    parser = XMLParser(target=target, forbid_dtd=True)
    try:
        with readable(directory, file) as path:
            size = path.stat().st_size
            if not size:
                raise JUnitFault(f"{shown} is empty: the suite ended before it wrote its results", file)
            if size > _LARGEST_FILE:
                raise JUnitFault(f"{shown} has more than {_LARGEST_FILE} bytes", file)
            with path.open("rb") as stream:
                while chunk := stream.read(_CHUNK):
                    parser.feed(chunk)
                    yield from target.taken()
        parser.close()
    except DefusedXmlException:
        raise JUnitFault(f"{shown} has a DTD or an entity, which a JUnit file must not have", file) from None
    except ParseError as error:
        line = error.position[0]
        raise JUnitFault(f"{shown}:{line} is not XML: {error}", file, line) from None
    except (ValueError, LookupError) as error:  # the document is no JUnit file, or has an unknown encoding
        if isinstance(error, JUnitFault):
            raise
        raise JUnitFault(f"{shown} is not a JUnit file: {truncate(clean(str(error)))}", file) from None
    yield from target.taken()


@dataclass(slots=True)
class _Suite:
    """A suite that the parser has entered.

    Args:
        declared: the failures and the errors that the attributes of the suite count.
        bad: the failures and the errors of the test cases in this suite and in the suites inside.
    """

    name: str
    declared: Counter[CaseOutcome]
    bad: Counter[CaseOutcome] = field(default_factory=Counter)


@dataclass(slots=True)
class _Case:
    """A test case that the parser has entered, or the failure of a suite.

    Args:
        outcomes: how many elements say that the test case has an outcome; 0 if only an attribute says so.
    """

    suite: str
    name: str
    seconds: float | None = None
    outcomes: Counter[CaseOutcome] = field(default_factory=Counter)
    messages: dict[CaseOutcome, str] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    remark: str = ""

    def result(self) -> CaseResult:
        """Return the test case after its end."""
        outcome = next((each for each in _WORST if each in self.outcomes), CaseOutcome.PASSED)
        if outcome is CaseOutcome.PASSED:
            return CaseResult(self.suite, self.name, outcome, self.seconds, _line(self.remark, _LONGEST_MESSAGE))
        text = "\n".join(filter(None, self.texts))
        message = self.messages.get(outcome, "") or next(iter(text.strip().splitlines()), "")
        return CaseResult(self.suite, self.name, outcome, self.seconds, _line(message, _LONGEST_MESSAGE), text)


class _Target:
    """Receives the events of the parser, and collects test cases."""

    def __init__(self) -> None:
        self._path: list[str] = []
        self._suites: list[_Suite] = []
        self._case: _Case | None = None
        self._text: str | None = None  # the text of the failure that the parser has entered
        self._text_depth = 0  # the depth of the element of this failure
        self._done: list[CaseResult] = []

    def taken(self) -> list[CaseResult]:
        """Return the complete test cases, and forget them."""
        done, self._done = self._done, []
        return done

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Handle the start of an element."""
        name = tag.rpartition("}")[2]
        if not self._path and name not in {"testsuites", "testsuite"}:
            raise ValueError(f"its root is <{name}>, not <testsuites> or <testsuite>")
        if len(self._path) == _DEEPEST:
            raise ValueError(f"elements are nested more than {_DEEPEST} deep")
        if name in _SUITES:
            self._enter_suite(name, attributes)
        elif name == "testcase":
            self._case = self._entered(attributes)
        elif name in _OUTCOMES and self._text is None:
            self._enter_outcome(_OUTCOMES[name], attributes)
        elif name == "property" and self._case is not None and attributes.get("name") == _REMARK:
            self._case.remark = attributes.get("value", "")
        self._path.append(name)

    def data(self, text: str) -> None:
        """Handle text. Only the beginning and the end of a long text are kept."""
        if self._text is not None:
            self._text += text
            if len(self._text) > 4 * (_HEAD + _TAIL):
                self._text = self._text[:_HEAD] + self._text[-2 * (_HEAD + _TAIL) :]

    def end(self, _: str) -> None:
        """Handle the end of an element."""
        name = self._path.pop()
        if name == "testcase":
            self._end_case()
        elif name in _SUITES:
            self._end_suite(self._suites.pop())
        elif self._text is not None and len(self._path) == self._text_depth:
            self._end_outcome(self._text)

    def close(self) -> None:
        """Handle the end of the document."""

    def _enter_suite(self, tag: str, attributes: Mapping[str, str]) -> None:
        if self._case is not None:
            raise ValueError(f"a <{tag}> is inside a <testcase>")
        name = _line(attributes.get("name", "")) if tag == "testsuite" else ""
        declared = Counter({outcome: _count(attributes, attribute) for outcome, attribute in _DECLARED.items()})
        self._suites.append(_Suite(name, declared))

    def _entered(self, attributes: Mapping[str, str]) -> _Case:
        if self._case is not None:
            raise ValueError("a <testcase> is inside another <testcase>")
        suite = attributes.get("classname", "") or self._suites[-1].name
        name = _line(attributes.get("name", "")) or "(without a name)"
        case = _Case(_line(suite), name, _seconds(attributes.get("time")))
        for key in ("status", "result"):
            if outcome := _STATUSES.get(attributes.get(key, "").lower()):
                case.outcomes[outcome] = 0
        return case

    def _enter_outcome(self, outcome: CaseOutcome, attributes: Mapping[str, str]) -> None:
        if self._case is None and outcome not in FAIL_ON:
            return
        if self._case is None:
            self._case = _Case(self._suites[-1].name, _SUITE_ITSELF)
        self._case.outcomes[outcome] += 1
        self._case.messages.setdefault(outcome, attributes.get("message", "") or attributes.get("type", ""))
        self._text, self._text_depth = "", len(self._path)

    def _end_outcome(self, text: str) -> None:
        self._text = None
        assert self._case is not None, "a failure belongs to a test case or a suite"
        if sum(map(len, self._case.texts)) < _HEAD + _TAIL:  # GoogleTest writes one element for each assertion
            self._case.texts.append(_shortened(clean(text.strip("\n"))))
        if "testcase" not in self._path:
            self._end_case()

    def _end_case(self) -> None:
        assert self._case is not None, "a test case ends after it has begun"
        self._done.append(self._case.result())
        for outcome in self._case.outcomes.keys() & set(FAIL_ON):
            self._suites[-1].bad[outcome] += max(1, self._case.outcomes[outcome])
        self._case = None

    def _end_suite(self, suite: _Suite) -> None:
        if suite.declared.total() > suite.bad.total():
            for outcome, count in (suite.declared - suite.bad).items():
                counted = f"the suite counts {suite.declared[outcome]} {_DECLARED[outcome]}"
                message = f"{counted}, but its test cases have {suite.bad[outcome]}"
                self._done.append(CaseResult(suite.name, _SUITE_ITSELF, outcome, None, message, message))
                suite.bad[outcome] += count
        if self._suites:
            self._suites[-1].bad += suite.bad


def _count(attributes: Mapping[str, str], name: str) -> int:
    """Return a number of failures in the attributes of a suite; 0 if the attribute is missing or empty."""
    text = attributes.get(name, "").strip()
    if text and not _COUNT.fullmatch(text):
        raise ValueError(f"`{name}` of a suite is {abbreviated(text)}, not a number of test cases")
    return int(text or 0)


def _seconds(text: str | None) -> float | None:
    """Return a duration; None if the text is not a duration."""
    plain = (text or "").strip()
    if _SECONDS_WITH_THOUSANDS.fullmatch(plain):
        plain = plain.replace(",", "")
    elif _SECONDS_WITH_DECIMAL_COMMA.fullmatch(plain):
        plain = plain.replace(",", ".")
    elif not _SECONDS.fullmatch(plain):
        return None
    seconds = float(plain)
    return seconds if seconds < _MAX_SECONDS else None


def _line(text: str, longest: int = _LONGEST_NAME) -> str:
    """Return text from outside as one line with a limited length."""
    if len(text) <= longest and text.isprintable() and "  " not in text:  # true for almost all names
        return text.strip()
    return truncate(" ".join(clean(text[: 8 * longest]).split()), longest)


def _shortened(text: str) -> str:
    """Return the beginning and the end of a text."""
    if len(text) <= _HEAD + _TAIL:
        return text
    return f"{text[:_HEAD]}\n[...]\n{text[-_TAIL:]}"
