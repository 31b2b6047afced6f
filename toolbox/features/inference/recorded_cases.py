"""Writes a case file again, with the answers of a trusted server as the expected responses.

Each answer is also judged by the case that was made of it, and so is the answer to the same request as a stream. So the
same answers pass the new file. If only the stream would not pass, the new case is not sent as a stream.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from toolbox.features.inference import answer_judging, case_files, recorded_responses, suites
from toolbox.features.inference.answer_records import AnswerRecord
from toolbox.features.inference.case_files import Case
from toolbox.features.inference.recorded_responses import UNDETERMINED, Keys, NotRecorded
from toolbox.features.inference.suites import Expectation, Expectations, ServerProtocol
from toolbox.ground.kit.server_answers import ServerError
from toolbox.ground.model import yaml_text
from toolbox.ground.model.cases import CaseOutcome
from toolbox.ground.model.errors import ConfigurationError, ConfigurationFaults
from toolbox.ground.model.yaml_scalars import FastLoader

_EXPECTED: Final = ("response", "error")  # the fields of a case that are recorded
_PROTOCOLS: Final[Sequence[ServerProtocol]] = ("fmaas", "openai")


@dataclass(frozen=True, slots=True)
class Recorded:
    """A case file with the answers of a server.

    Args:
        text: the new file, which is complete only if there are no faults.
        entries: the fields of each new case.
        faults: why cases cannot be recorded, each with the name of the case.
        remarks: why cases got `stream: false`, each with the name of the case.
    """

    text: str
    entries: Sequence[Mapping[str, Any]]
    faults: Sequence[str]
    remarks: Sequence[str] = ()

    @property
    def errors(self) -> list[str]:
        """The cases whose answer is an error, each with the error."""
        return [f"{entry['name']}: {_shown(entry['error'])}" for entry in self.entries if "error" in entry]


@dataclass(frozen=True, slots=True)
class CaseFile:
    """A case file whose answers are recorded.

    Args:
        cases: the cases that the file describes.
        entries: the fields of each case as they are written.
        labels: the keys of the file if it is a mapping; None if it is a list.
        keys: how the fields of new responses are written.
    """

    cases: Sequence[Case]
    entries: Sequence[Mapping[str, Any]]
    labels: Sequence[Any] | None
    keys: Keys

    @classmethod
    def read(cls, file: Path, *, shown: str = "", keys: Keys | None = None) -> CaseFile:
        """Read a case file.

        Args:
            shown: the name of the file in messages.
            keys: how the fields of new responses are written; None for the style of most fields of the file.

        Raises:
            ConfigurationError: as for `case_files.load`.
        """
        shown = shown or str(file)
        text = case_files.read_text(file, shown)
        cases = case_files.parse(text, source=shown, suite=file.stem)
        content = _loaded(text)
        entries = list(content.values()) if isinstance(content, dict) else content
        return cls(cases, entries, list(content) if isinstance(content, dict) else None, keys or _style(cases, entries))

    def requests(self, protocols: Sequence[ServerProtocol]) -> dict[str, Any]:
        """Return the content of `cases.json`, which sends each case, and as a stream where a run does so by default.

        Raises:
            ConfigurationFaults: the server does not speak the protocol of a case, or the output of a case is random.
        """
        sent, described = _described(self.cases, protocols)
        faults = [f"the case {each['name']!r} cannot be sent: {each['reason']}" for each in described["skipped"]]
        faults += [
            f"{case.location}: the case {case.name!r}: {UNDETERMINED}"
            for case in self.cases
            if recorded_responses.is_undetermined(case) and recorded_responses.expected_error(case) is None
        ]
        if faults:
            raise ConfigurationFaults(faults)
        return sent

    def recorded(self, answers: Iterable[AnswerRecord], source: str) -> Recorded:
        """Return the case file with the answers.

        Args:
            source: the name of the new file in messages.
        """
        by_name = {(answer.case, answer.stream): answer for answer in answers}
        sent, _ = _described(self.cases, _PROTOCOLS)
        texts, entries, faults, remarks = [], [], [], []
        for index, (case, request) in enumerate(zip(self.cases, sent["cases"], strict=True)):
            both = [by_name.get((request["name"], stream)) for stream in (False, True)]
            try:
                entry, remark = self._entry(index, *both, is_streamed=request["stream"], source=source)
            except NotRecorded as error:
                faults.append(f"{case.name}: {error}")
            else:
                entries.append(entry)
                texts.append(self._text(index, entry))
                remarks += [f"{case.name}: {remark}"] if remark else []
        return Recorded("\n".join(texts), entries, faults, remarks)

    def _entry(
        self, index: int, answer: AnswerRecord | None, streamed: AnswerRecord | None, *, is_streamed: bool, source: str
    ) -> tuple[dict[str, Any], str]:
        """Return the fields of a new case, and a remark if they say that the case is not sent as a stream."""
        case = self.cases[index]
        entry = _replaced(self.entries[index], recorded_responses.recorded(case, answer, self.keys))
        expectation = _expectation(self._text(index, entry), entry, source)
        _require_right(expectation, answer)
        try:
            if is_streamed:
                _require_right(expectation, streamed, stream=True)
        except NotRecorded as error:
            if case.stream:
                raise NotRecorded(f"as a stream: {error}") from None
            return {**entry, "stream": False}, f"got `stream: false`, because the stream does not pass: {error}"
        return entry, ""

    def _text(self, index: int, entry: Mapping[str, Any]) -> str:
        """Return the text of a case in the new file."""
        return yaml_text.dump([entry] if self.labels is None else {self.labels[index]: entry})


def _replaced(written: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a case with a new response or error at the place of the old one, or at the end."""
    entry: dict[str, Any] = {}
    for name, value in written.items():
        entry.update(new if name in _EXPECTED else {name: value})
    return {**entry, **new}


def _expectation(text: str, entry: Mapping[str, Any], source: str) -> Expectation:
    """Return what a new case expects. Raise NotRecorded if a case file cannot express it."""
    try:
        (case,) = case_files.parse(text, source=source, suite="")
    except ConfigurationError as error:
        raise NotRecorded(f"a case file cannot express the answer: {error.faults[0]}") from None
    content = _loaded(text)
    if entry not in (content.values() if isinstance(content, dict) else content):
        raise NotRecorded("the answer changes when it is written as YAML and read again")
    _, described = _described([case], _PROTOCOLS)
    (expectation,) = Expectations.model_validate_json(json.dumps(described)).expectations.values()
    return expectation


def _require_right(expectation: Expectation, answer: AnswerRecord | None, *, stream: bool = False) -> None:
    """Raise NotRecorded if an answer does not pass the case that was made of it."""
    result = answer_judging.judge(expectation, expectation.comparators(), answer, stream=stream)
    if result.outcome not in (CaseOutcome.PASSED, CaseOutcome.SKIPPED):
        raise NotRecorded(result.message)


def _shown(error: Mapping[str, Any]) -> str:
    return str(ServerError(**error))


def _described(cases: Sequence[Case], protocols: Sequence[ServerProtocol]) -> tuple[dict[str, Any], dict[str, Any]]:
    return suites.describe(cases, protocols=protocols)


def _loaded(text: str) -> Any:
    return yaml.load(text, Loader=FastLoader)  # noqa: S506  # a safe loader


def _style(cases: Sequence[Case], entries: Sequence[Mapping[str, Any]]) -> Keys:
    """Return the style of most fields of the messages of fmaas. OpenAI's API has only one style."""
    of_fmaas = [entry for case, entry in zip(cases, entries, strict=True) if suites.SPOKEN[case.protocol] == "fmaas"]
    keys = [key for entry in of_fmaas for name in ("request", *_EXPECTED) for key in _keys_in(entry.get(name))]
    snake = sum("_" in key for key in keys)
    camel = sum(key != key.lower() for key in keys)
    return "snake_case" if snake > camel else "camelCase"


def _keys_in(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield from value
    for item in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield from _keys_in(item)
