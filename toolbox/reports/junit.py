"""Writes `junit.xml`, which Jenkins, GitLab and GitHub's actions read.

The file has one suite per phase, and one test case per cell or command.

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

from toolbox.model.events import StepKind
from toolbox.model.evidence import Metric
from toolbox.model.foreign_text import replace_unsafe
from toolbox.model.verdicts import Verdict
from toolbox.reports._excerpts import Excerpt, Excerpts
from toolbox.runs.layout import RunDirectory
from toolbox.runs.run_state import RunState, StepState
from toolbox.system import filesystem

_TAGS: Final = {
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
    document = _element("testsuites", counts)
    for phase, cases in suites.items():
        document.append(report.suite(f"{summary.project}.{phase.partition('__')[2]}", cases))
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(document, "unicode")}\n'


class _Report:
    """Makes the elements of the document."""

    def __init__(self, summary: RunState) -> None:
        self._summary = summary
        self._request = RunDirectory(summary.directory).read_request()
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


def _text(text: str) -> str:
    return _NO_XML.sub("\ufffd", replace_unsafe(text))
