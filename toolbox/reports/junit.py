"""Writes `junit.xml`, which Jenkins, GitLab and GitHub's actions read.

The file has one suite per phase, and one test case per cell or command.

The file conforms to the schema of Jenkins' xUnit plugin (junit-10.xsd), which rejects a file with an unknown element or
attribute. A failed step is a `failure`, a step with an error is an `error`, and a step that was skipped, failed as
expected, or failed in quarantine is `skipped`. The schema has no properties of test cases, so properties are written as
lines `[[PROPERTY|name=value]]` of the output, as https://github.com/testmoapp/junitxml describes.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final
from xml.sax.saxutils import XMLGenerator
from xml.sax.xmlreader import AttributesImpl

from toolbox.model.events import StepKind
from toolbox.model.evidence import Metric
from toolbox.model.foreign_text import replace_unsafe
from toolbox.model.verdicts import Verdict
from toolbox.reports._excerpts import Excerpt, Excerpts
from toolbox.runs.layout import RunDirectory
from toolbox.runs.run_state import RunState, StepState
from toolbox.system import filesystem

_ELEMENTS: Final = {
    Verdict.FAILED: "failure",
    Verdict.XPASSED: "failure",
    Verdict.ERROR: "error",
    Verdict.CANCELLED: "error",
    Verdict.SKIPPED: "skipped",
    Verdict.XFAILED: "skipped",
}
_EXCERPT_CHARACTERS: Final = 4_000_000  # of all cases together, because GitLab reads files of up to 30 MB
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
            suites.setdefault(step.step.partition("/")[0], []).append(step)
    report = _Report(summary)
    counts = _counts(f"{summary.project} {summary.run}", [step for cases in suites.values() for step in cases])
    del counts["skipped"]  # the schema allows this attribute only for a suite
    report.open("testsuites", counts)
    for phase, cases in suites.items():
        report.suite(f"{summary.project}.{phase.partition('__')[2]}", cases)
    report.close("testsuites")
    return report.text.getvalue() + "\n"


class _Report:
    """The document, element by element."""

    def __init__(self, summary: RunState) -> None:
        self.text = io.StringIO()
        self._summary = summary
        self._request = RunDirectory(summary.directory).read_request()
        self._excerpts = Excerpts(summary.directory, characters=_EXCERPT_CHARACTERS, withheld=summary.secrets_left)
        self._xml = XMLGenerator(self.text, "UTF-8", short_empty_elements=True)
        self._xml.startDocument()

    def open(self, element: str, attributes: Mapping[str, str]) -> None:
        cleaned = {name: _text(value) for name, value in attributes.items()}
        self._xml.startElement(element, AttributesImpl(cleaned))

    def close(self, element: str) -> None:
        self._xml.endElement(element)

    def element(self, element: str, text: str, attributes: Mapping[str, str] | None = None) -> None:
        """Write an element with text, which may be empty."""
        self.open(element, attributes or {})
        self._xml.characters(_text(text))
        self.close(element)

    def suite(self, name: str, cases: Sequence[StepState]) -> None:
        """Write a phase."""
        started, host = cases[0].started, self._request.get("host")
        stamp = {"timestamp": started.strftime("%Y-%m-%dT%H:%M:%S")} if started else {}
        self.open("testsuite", {**_counts(name, cases), **stamp, **({"hostname": str(host)} if host else {})})
        self._about()
        seen: Counter[str] = Counter()
        for step in cases:
            seen[step.name] += 1  # GitLab reads only the first of several cases with the same name
            number = f" #{seen[step.name]}" if seen[step.name] > 1 else ""
            self._case({"classname": name, "name": f"{step.name}{number}", "time": _seconds([step])}, step)
        if self._summary.attribution and any(step.kind is StepKind.CELL for step in cases):
            self.element("system-out", "\n".join(_plain(str(finding)) for finding in self._summary.attribution))
        self.close("testsuite")

    def _about(self) -> None:
        presets, revision = ", ".join(self._summary.presets), str(self._request.get("revision") or "")
        self.open("properties", {})
        self.element("property", "", {"name": "run", "value": self._summary.run})
        for name, value in (("presets", presets), ("revision", revision)):
            if value:
                self.element("property", "", {"name": name, "value": value})
        if self._summary.damage:
            self.element("property", "", {"name": "damage", "value": self._summary.damage_warning})
        self.close("properties")

    def _case(self, attributes: Mapping[str, str], step: StepState) -> None:
        self.open("testcase", attributes)
        output = list(_properties(step))
        if (element := _element(step)) is not None:
            about = {"message": next(iter(step.message.splitlines()), "the step did not end")}
            if element != "skipped":
                about["type"] = str(step.cause or step.verdict or Verdict.CANCELLED)
                output += _evidence(self._excerpts.of(step, is_bad=True))
            self.element(element, f"{step.message}\n{self._summary.directory / step.step}", about)
        if output:
            self.element("system-out", "\n".join(output))
        self.close("testcase")


def _element(step: StepState) -> str | None:
    """Return the name of the element inside the test case of a step; None if the step passed."""
    element = _ELEMENTS.get(step.verdict or Verdict.CANCELLED)
    return element if step.counts or element is None else "skipped"


def _properties(step: StepState) -> Iterator[str]:
    """Yield the properties of a test case, as lines that tools recognise."""
    values = {f"settings.{axis}": label for axis, label in step.labels.items()}
    if step.attempts:
        values |= {"target": step.attempts[-1].target, "attempts": str(len(step.attempts))}
    for metric in step.metrics:
        values[f"metrics.{metric.metric}"] = str(Metric(metric.metric, metric.value, metric.unit, metric.fault))
    for name, value in values.items():
        line = _plain(" ".join(f"{name}={value}".split()))
        yield f"[[PROPERTY|{line}{' ' if line.endswith(']') else ''}]]"


def _evidence(excerpts: Iterable[Excerpt]) -> Iterator[str]:
    """Yield the lines of logs that show why a case failed."""
    for excerpt in excerpts:
        yield f"\n{_plain(excerpt.title)}"
        for line in excerpt.lines:
            yield f"{line.number or '':>6}{'>' if line.is_evidence else ' '} {_plain(line.text)}"


def _plain(text: str) -> str:
    """Return text from outside without double brackets, because tools read them as properties or attachments."""
    return _DOUBLE_BRACKET.sub(" ", text)


def _counts(name: str, cases: Sequence[StepState]) -> dict[str, str]:
    elements = [_element(step) for step in cases]
    return {
        "name": name,
        "tests": str(len(cases)),
        "failures": str(elements.count("failure")),
        "errors": str(elements.count("error")),
        "skipped": str(elements.count("skipped")),
        "time": _seconds(cases),
    }


def _seconds(cases: Sequence[StepState]) -> str:
    return f"{sum(step.seconds or 0.0 for step in cases):.3f}"


def _text(text: str) -> str:
    return _NO_XML.sub("\ufffd", replace_unsafe(text))
