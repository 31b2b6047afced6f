"""Writes `junit.xml`, which Jenkins, GitLab and GitHub's actions read.

The file has one suite per phase, and one test case per cell or command. If a check has read the JUnit files of a cell,
a suite with the test cases of the cell follows the cell. If the run did not pass although no step failed, a test case
stands for the run.

The file conforms to the schema of Jenkins' xUnit plugin (junit-10.xsd), which rejects a file with an unknown element or
attribute. A failed step is a `failure`, a step with an error is an `error`, and a step that was skipped, failed as
expected, or failed in quarantine is `skipped`. The schema has no properties of test cases, so properties are written as
lines `[[PROPERTY|name=value]]` of the output, as https://github.com/testmoapp/junitxml describes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final
from xml.etree.ElementTree import Element, tostring

from toolbox.ground.model.cases import CaseOutcome, CaseResult
from toolbox.ground.model.events import StepKind
from toolbox.ground.model.evidence import Metric
from toolbox.ground.model.foreign_text import replace_unsafe
from toolbox.ground.model.verdicts import Verdict
from toolbox.ground.system import filesystem
from toolbox.records.runs import step_cases
from toolbox.records.runs.layout import RunDirectory
from toolbox.records.runs.run_state import RunState, StepState
from toolbox.records.runs.step_cases import StepCases
from toolbox.reports._excerpts import Excerpt, Excerpts

_TAGS: Final = {
    Verdict.FAILED: "failure",
    Verdict.XPASSED: "failure",
    Verdict.ERROR: "error",
    Verdict.CANCELLED: "error",
    Verdict.SKIPPED: "skipped",
    Verdict.XFAILED: "skipped",
}
_CASE_CHARACTERS: Final = 16_000_000  # of the test cases of all cells together, failures not counted
_EXCERPT_CHARACTERS: Final = 4_000_000  # of all cases together, because GitLab reads files of up to 30 MB
_PLURALS: Final = {"failure": "failures", "error": "errors", "skipped": "skipped"}
_CASE_TAGS: Final = {
    CaseOutcome.FAILED: "failure",
    CaseOutcome.ERROR: "error",
    CaseOutcome.SKIPPED: "skipped",
}
_NO_XML = re.compile("[\ufffe\uffff]")  # besides control characters, XML 1.0 does not allow these (section 2.2)
_DOUBLE_BRACKET = re.compile(r"(?<=\[)(?=\[)|(?<=\])(?=\])")


def write(summary: RunState) -> Path:
    """Write the report of a run into its directory, and return its path."""
    return filesystem.write_derived(RunDirectory(summary.directory).junit, partial(render, summary))


def render(summary: RunState) -> str:
    """Return the report of a run."""
    suites: dict[str, list[StepState]] = {}
    for step in summary.steps.values():
        if step.kind is StepKind.CELL or (step.kind is StepKind.COMMAND and step.counts):
            # A run that was merged from shards has each phase several times.
            suites.setdefault(step.step.partition("/")[0].partition("__")[2], []).append(step)
    report = _Report(summary)
    elements = []
    for phase, steps in suites.items():
        name = f"{summary.project}.{phase}"
        elements.append(report.suite(name, steps))
        elements += [report.suite_of_cell(name, step) for step in steps if step.cases]
    elements += report.suite_of_run(elements)
    seconds = _seconds([step for steps in suites.values() for step in steps])
    document = _element("testsuites", {**_sum(f"{summary.project} {summary.run}", elements), "time": seconds})
    document.extend(elements)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(document, "unicode")}\n'


class _Report:
    """Makes the elements of the document."""

    def __init__(self, summary: RunState) -> None:
        self._summary = summary
        self._request = RunDirectory(summary.directory).read_request()
        self._characters = _CASE_CHARACTERS
        self._excerpts = Excerpts(summary.directory, characters=_EXCERPT_CHARACTERS, withheld=summary.secrets_left)

    def suite(self, name: str, cases: Sequence[StepState]) -> Element:
        """Return the element of a phase."""
        started, host = cases[0].started, self._request.get("host")
        stamp = {"timestamp": started.strftime("%Y-%m-%dT%H:%M:%S")} if started else {}
        suite = _element("testsuite", {**_counts(name, cases), **stamp, **({"hostname": str(host)} if host else {})})
        suite.append(self._about())
        seen: Counter[str] = Counter()
        for step in cases:
            seen[step.name] += 1  # GitLab reads only the first of several cases with the same name
            number = f" #{seen[step.name]}" if seen[step.name] > 1 else ""
            suite.append(
                self._case({"classname": name, "name": f"{step.name}{number}", "time": _seconds([step])}, step)
            )
        if self._summary.attribution and any(step.kind is StepKind.CELL for step in cases):
            findings = "\n".join(_plain(str(finding)) for finding in self._summary.attribution)
            suite.append(_element("system-out", text=findings))
        return suite

    def suite_of_cell(self, phase: str, step: StepState) -> Element:
        """Return the element with the test cases of a cell. Test cases that passed are omitted when they are many."""
        cases = step_cases.read(self._summary.directory, step, self._summary.secrets_left)
        assert cases is not None, "the step has test cases"
        elements, omitted = [], cases.total - len(cases.cases)
        for case in sorted(cases.cases, key=lambda case: case.outcome not in cases.fail_on):
            self._characters -= len(case.title) + len(step.name) + 80
            if self._characters > 0 or case.outcome in cases.fail_on:
                elements.append(_case_of_cell(case, step, cases))
            else:
                omitted += 1
        name = f"{phase}.{step.name}"
        counts = Counter(child.tag for element in elements for child in element)
        suite = _element(
            "testsuite",
            {
                "name": name,
                "tests": str(len(elements)),
                **{plural: str(counts[tag]) for tag, plural in _PLURALS.items()},
                **_time(cases.seconds),
            },
        )
        suite.extend(elements)
        if omitted:
            suite.append(_element("system-out", text=f"{omitted} more test cases are left out here"))
        return suite

    def suite_of_run(self, elements: Sequence[Element]) -> list[Element]:
        """Return the element of the run itself, if the run did not pass and no other element says so."""
        end = self._summary.finished
        if end is None or end.verdict.is_pass or _has_failure(elements):
            return []
        run = StepState("", "run", StepKind.PHASE, end.verdict, end.cause, end.message, end.seconds)
        return [self.suite(self._summary.project, [run])]

    def _about(self) -> Element:
        values = {
            "presets": ", ".join(self._summary.presets),
            "revision": str(self._request.get("revision") or ""),
            "damage": self._summary.damage_warning,
        }
        named = {"run": self._summary.run, **{name: text for name, text in values.items() if text}}
        properties = _element("properties")
        properties.extend(_element("property", {"name": name, "value": text}) for name, text in named.items())
        return properties

    def _case(self, attributes: Mapping[str, str], step: StepState) -> Element:
        case = _element("testcase", attributes)
        output = list(_properties(step))
        if (tag := _tag(step)) is not None:
            about = {"message": next(iter(step.message.splitlines()), "the step did not end")}
            if tag != "skipped":
                about["type"] = str(step.cause or step.verdict or Verdict.CANCELLED)
                output += _evidence(self._excerpts.of(step, is_bad=True))
            case.append(_element(tag, about, f"{step.message}\n{self._summary.directory / step.step}"))
        if output:
            case.append(_element("system-out", text="\n".join(output)))
        return case


def _has_failure(suites: Iterable[Element]) -> bool:
    return any(int(suite.get(name, "0")) for suite in suites for name in ("failures", "errors"))


def _case_of_cell(case: CaseResult, step: StepState, cases: StepCases) -> Element:
    """Return the element of a test case. A failure that does not fail the run is written as `skipped`."""
    attributes = {"classname": f"{step.name}.{case.suite}".rstrip("."), "name": case.name}
    element = _element("testcase", {**attributes, **_time(case.seconds)})
    tag = _CASE_TAGS.get(case.outcome)
    if case.outcome in cases.fail_on and case.outcome is not CaseOutcome.ERROR:
        tag = "failure"
    elif tag in {"failure", "error"} and case.outcome not in cases.fail_on:
        tag = "skipped"
    if tag in {"failure", "error"} and _tag(step) not in {"failure", "error"}:
        tag = "skipped"
    if tag is not None:
        about = {"message": case.message} | ({"type": str(case.outcome)} if tag != "skipped" else {})
        element.append(_element(tag, about, case.text or case.message))
    elif case.message:
        element.append(_element("system-out", text=_plain(f"{case.outcome}: {case.message}")))
    return element


def _sum(name: str, suites: Iterable[Element]) -> dict[str, str]:
    """Return the counts of the root: the sums over all suites. The schema allows `skipped` only for a suite."""
    listed = list(suites)
    names = ("tests", "failures", "errors")
    return {"name": name, **{each: str(sum(int(suite.get(each, "0")) for suite in listed)) for each in names}}


def _element(tag: str, attributes: Mapping[str, str] | None = None, text: str = "") -> Element:
    element = Element(tag, {name: _text(value) for name, value in (attributes or {}).items()})
    element.text = _text(text)
    return element


def _tag(step: StepState) -> str | None:
    """Return the name of the element inside the test case of a step; None if the step passed."""
    tag = _TAGS.get(step.verdict or Verdict.CANCELLED)
    return tag if step.counts or tag is None else "skipped"


def _properties(step: StepState) -> Iterator[str]:
    """Yield the properties of a test case, as lines that tools recognise."""
    values = {f"settings.{axis}": label for axis, label in step.labels.items()}
    if step.attempts:
        values |= {"target": step.attempts[-1].target, "attempts": str(len(step.attempts))}
    if step.reused_from:
        values["reused_from"] = step.reused_from
    for metric in step.metrics:
        values[f"metrics.{metric.metric}"] = str(Metric(metric.metric, metric.value, metric.unit, metric.fault))
    for name, value in values.items():
        line = _plain(" ".join(f"{name}={value}".split()))
        yield f"[[PROPERTY|{line}{' ' if line.endswith(']') else ''}]]"


def _evidence(excerpts: Iterable[Excerpt]) -> Iterator[str]:
    """Yield the lines of logs that show why a case failed."""
    for excerpt in excerpts:
        yield f"\n{_plain(excerpt.title)}"
        yield from (_plain(str(line)) for line in excerpt.lines)


def _plain(text: str) -> str:
    """Return text from outside without double brackets, because tools read them as properties or attachments."""
    return _DOUBLE_BRACKET.sub(" ", text)


def _counts(name: str, cases: Sequence[StepState]) -> dict[str, str]:
    tags = [_tag(step) for step in cases]
    return {
        "name": name,
        "tests": str(len(cases)),
        "failures": str(tags.count("failure")),
        "errors": str(tags.count("error")),
        "skipped": str(tags.count("skipped")),
        "time": _seconds(cases),
    }


def _seconds(cases: Sequence[StepState]) -> str:
    return f"{sum(step.seconds or 0.0 for step in cases):.3f}"


def _time(seconds: float | None) -> dict[str, str]:
    """Return the attribute of a duration. An unknown duration has none: readers would count 0 seconds."""
    return {} if seconds is None else {"time": f"{seconds:.3f}"}


def _text(text: str) -> str:
    return _NO_XML.sub("\ufffd", replace_unsafe(text))
