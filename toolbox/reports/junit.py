"""`junit.xml`, which Jenkins, GitLab and GitHub's actions read: a suite a phase, a test case a cell or command.

Derived from the summary of a run. The format is that of the schema that Jenkins publishes (jenkins-junit.xsd):
a failure is a `failure`, an error an `error`, what was skipped or was expected to fail is `skipped`.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from xml.sax.saxutils import XMLGenerator
from xml.sax.xmlreader import AttributesImpl

from toolbox.model.events import StepKind
from toolbox.model.verdicts import Verdict
from toolbox.runs.summary import RunSummary, StepSummary
from toolbox.system import files

FILE: Final = "junit.xml"
_ELEMENTS: Final = {
    Verdict.FAILED: "failure",
    Verdict.XPASSED: "failure",
    Verdict.ERROR: "error",
    Verdict.CANCELLED: "error",
    Verdict.SKIPPED: "skipped",
    Verdict.XFAILED: "skipped",
}
_CASES: Final = (StepKind.CELL, StepKind.COMMAND)
# What XML 1.0 cannot hold (section 2.2).
_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write(summary: RunSummary) -> Path:
    """Write the report of a run into its directory, and return its path."""
    return files.write_text(summary.directory / FILE, render(summary))


def render(summary: RunSummary) -> str:
    """Return the report of a run."""
    suites: dict[str, list[StepSummary]] = {}
    for step in summary.steps.values():
        if step.kind in _CASES and step.counts:
            suites.setdefault(step.step.partition("/")[0], []).append(step)
    text = io.StringIO()
    xml = XMLGenerator(text, "UTF-8", short_empty_elements=True)
    xml.startDocument()
    everything = [step for cases in suites.values() for step in cases]
    _open(xml, "testsuites", _counts(f"{summary.project} {summary.run}", everything))
    for phase, cases in suites.items():
        started = cases[0].started
        stamp = {"timestamp": started.strftime("%Y-%m-%dT%H:%M:%S")} if started else {}
        _open(xml, "testsuite", {**_counts(f"{summary.project}.{phase.partition('__')[2]}", cases), **stamp})
        for step in cases:
            _case(xml, summary, step)
        xml.endElement("testsuite")
    xml.endElement("testsuites")
    return text.getvalue() + "\n"


def _case(xml: XMLGenerator, summary: RunSummary, step: StepSummary) -> None:
    phase = step.step.partition("/")[0].partition("__")[2]
    attributes = {"classname": f"{summary.project}.{phase}", "name": step.name, "time": _seconds([step])}
    _open(xml, "testcase", attributes)
    verdict = step.verdict or Verdict.CANCELLED
    if (element := _ELEMENTS.get(verdict)) is not None:
        lines = step.message.splitlines() or ["it did not end"]
        attributes = {"message": lines[0]}
        if element != "skipped":
            attributes["type"] = str(step.cause or verdict)
        _open(xml, element, attributes)
        xml.characters(_text(f"{step.message}\n{summary.directory / step.step}"))
        xml.endElement(element)
    xml.endElement("testcase")


def _open(xml: XMLGenerator, element: str, attributes: dict[str, str]) -> None:
    xml.startElement(element, AttributesImpl({name: _text(value) for name, value in attributes.items()}))


def _counts(name: str, cases: Sequence[StepSummary]) -> dict[str, str]:
    elements = [_ELEMENTS.get(step.verdict or Verdict.CANCELLED, "") for step in cases]
    return {
        "name": name,
        "tests": str(len(cases)),
        "failures": str(elements.count("failure")),
        "errors": str(elements.count("error")),
        "skipped": str(elements.count("skipped")),
        "time": _seconds(cases),
    }


def _seconds(cases: Sequence[StepSummary]) -> str:
    return f"{sum(step.seconds or 0.0 for step in cases):.3f}"


def _text(text: str) -> str:
    return _NO_XML.sub("\ufffd", text)
