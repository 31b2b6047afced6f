"""Selects the cases for one server, and describes them in two files of a workload.

- `cases.json`: the requests that the worker on the target sends. A case with `stream` is also sent as a stream.
- `expectations.json`: for each of these cases what to expect, and the comparators; and the cases that are not sent,
  each with the reason. The check `answers` reads both files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from toolbox.features.inference.answer_records import GenerationRecord
from toolbox.features.inference.case_files import Case, Protocol, can_stream
from toolbox.ground.extensions import loading
from toolbox.ground.extensions.protocols import COMPARATORS, Comparator
from toolbox.ground.kit.server_answers import Generation, as_json
from toolbox.ground.model.evidence import Evidence
from toolbox.ground.model.text import counted
from toolbox.records.runs.evidence_files import read_document, readable

ServerProtocol = Literal["fmaas", "openai"]
Document = TypeVar("Document", bound=BaseModel)
SPOKEN: Final[Mapping[Protocol, ServerProtocol]] = {
    "fmaas": "fmaas",
    "tokenize": "fmaas",
    "completions": "openai",
    "chat": "openai",
    "model_info": "fmaas",
    "models": "openai",
}
_MAX_REASONS: Final = 3
_ERROR: Final = "error"
_EXACT_NAME: Final = "exact"
_EXACT: Final = ({COMPARATORS.key: _EXACT_NAME},)
_LOGPROBS: Final = ({COMPARATORS.key: "logprobs"},)


class Expectation(BaseModel):
    """What to expect of a case.

    Args:
        suite: the name of the file of the case.
        name: the name of the case in the file.
        requests: the number of requests in the batch.
        answers: the expected answer to each request; None if the case gives none.
        compare: the comparators.
        is_random: whether the output is random, so that only the counts and the tokens of the input are compared.
        description: the expected fields of a description of models; None if no such response is expected.
        asks_logprobs: whether the request asks for the logprobs of the generated tokens.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    suite: str
    name: str
    protocol: Protocol
    requests: int
    answers: list[GenerationRecord] | None
    compare: list[dict[str, Any]]
    is_random: bool = False
    description: dict[str, Any] | None = None
    asks_logprobs: bool = False

    @property
    def compares_nothing(self) -> bool:
        """Whether any complete answer is right: nothing is expected, and no comparator has a field of its own."""
        is_expecting = self.answers is not None or self.description is not None
        return not is_expecting and all(spec[COMPARATORS.key] == _EXACT_NAME for spec in self.compare)

    def comparators(self) -> list[Comparator]:
        """Return the comparators.

        Raises:
            ValueError: there is no such comparator, or one of its fields is wrong.
        """
        return [loading.parse(COMPARATORS, spec) for spec in self.compare]


class Sent(BaseModel):
    """A request that the worker sends."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    name: str
    stream: bool


class Skipped(BaseModel):
    """A case that is not sent."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    suite: str
    name: str
    reason: str


class SentCases(BaseModel):
    """The content of `cases.json`, as the check `answers` reads it."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    cases: list[Sent]


class Expectations(BaseModel):
    """The content of `expectations.json`."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    expectations: dict[str, Expectation]
    skipped: list[Skipped] = []


def read(evidence: Evidence, file: str, model: type[Document]) -> Document:
    """Return the content of one of the two files.

    Raises:
        ValueError: the file cannot be read, its content is wrong, or the workload has changed it.
    """
    if str(PurePath(file)) in evidence.changed:
        raise ValueError(f"{file} is not as it was sent: the workload has changed it")
    with readable(evidence.directory, file) as path:
        content = read_document(path, file)
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        detail = error.errors(include_input=False)[0]
        raise ValueError(f"{file} does not describe cases: {detail['msg']}") from None


def describe(
    cases: Iterable[Case],
    *,
    protocols: Sequence[ServerProtocol],
    shards: int = 1,
    streams: bool = True,
    compare: Sequence[Mapping[str, Any]] | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the contents of `cases.json` and of `expectations.json` for one server.

    Args:
        cases: the cases of all files.
        protocols: the protocols of the server, the main protocol first.
        shards: the number of shards of the server.
        streams: whether cases that ask for one text are also sent as a stream.
        compare: the comparators of the cases that have none of their own.
    """
    sent: list[dict[str, Any]] = []
    expectations: dict[str, dict[str, Any]] = {}
    skipped: list[dict[str, Any]] = []
    seen: Counter[tuple[str, str]] = Counter()
    for case in cases:
        if reason := _skip_reason(case, protocols, shards):
            skipped.append({"suite": case.suite, "name": case.name, "reason": reason})
            continue
        seen[case.suite, case.name] += 1
        repeats = seen[case.suite, case.name]  # two files in different folders may have the same name
        name = case.name if repeats == 1 else f"{case.name} #{repeats}"
        identity = f"{case.suite}/{name}"
        expectations[identity] = _expectation(case, name, compare)
        stream = streams and case.requests == 1 and can_stream(case) if case.stream is None else case.stream
        fields = {"name": identity, "protocol": case.protocol, "request": case.request, "stream": stream}
        sent.append({**fields, **({"retries": case.retries} if case.retries else {})})
    return {"protocol": protocols[0], "cases": sent}, {"expectations": expectations, "skipped": skipped}


def describe_load(
    cases: Iterable[Case], *, protocols: Sequence[ServerProtocol], shards: int = 1
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the contents of `cases.json` and of `expectations.json` for a load on one server.

    Cases that expect an error, or that do not ask for a text, are not sent. Nothing is expected of an answer.
    """
    kept: list[Case] = []
    skipped: list[dict[str, Any]] = []
    for case in cases:
        if reason := _unfit_for_load(case):
            skipped.append({"suite": case.suite, "name": case.name, "reason": reason})
        else:
            kept.append(case)
    sent, described = describe(kept, protocols=protocols, shards=shards)
    return sent, {"expectations": {}, "skipped": [*skipped, *described["skipped"]]}


def skip_reasons(expectations: Mapping[str, Any]) -> str:
    """Return the most frequent reasons why cases are not sent: `2 cases: the case expects an error`."""
    reasons = Counter(each["reason"] for each in expectations["skipped"]).most_common(_MAX_REASONS)
    return "; ".join(f"{counted(count, 'case')}: {reason}" for reason, count in reasons)


def _unfit_for_load(case: Case) -> str:
    if not can_stream(case):
        return "the case does not ask for a text"
    is_error = any(answer.error is not None for answer in case.expected or ())
    return "the case expects an error" if is_error else ""


def _skip_reason(case: Case, protocols: Collection[ServerProtocol], shards: int) -> str:
    if SPOKEN[case.protocol] not in protocols:
        return f"the server does not speak {SPOKEN[case.protocol]}, only {' and '.join(protocols)}"
    if case.is_single_shard_only and shards > 1:
        return f"single_shard_only: the server has {shards} shards"
    return ""


def _expectation(case: Case, name: str, compare: Sequence[Mapping[str, Any]] | None) -> dict[str, Any]:
    answers = case.expected
    return {
        "suite": case.suite,
        "name": name,
        "protocol": case.protocol,
        "requests": case.requests,
        "answers": as_json(answers),
        "compare": [dict(spec) for spec in _comparators(case, compare)],
        "is_random": case.is_random,
        "description": case.description,
        "asks_logprobs": _asks_logprobs(case),
    }


def _asks_logprobs(case: Case) -> bool:
    request = case.request
    if case.protocol == "fmaas":
        options = (request.get("params") or {}).get("response") or {}
        names = (("generatedTokens", "generated_tokens"), ("tokenLogprobs", "token_logprobs"))
        return all(any(options.get(name) for name in both) for both in names)
    return case.protocol in ("completions", "chat") and request.get("logprobs") not in (None, False, 0)


def _comparators(case: Case, default: Sequence[Mapping[str, Any]] | None) -> Sequence[Mapping[str, Any]]:
    """Return the comparators of a case: its own, else those of the specification, else the default ones.

    If the case expects an error, only the comparator `error` is used, otherwise all other comparators. The comparators
    of the specification are made for generated texts, so they are not used for the responses to `tokenize` requests.
    """
    answers = case.expected or ()
    is_error = any(answer.error is not None for answer in answers)
    if case.protocol == "tokenize":
        default = _EXACT
    chosen = [spec for spec in case.compare or default or () if (spec.get(COMPARATORS.key) == _ERROR) is is_error]
    if is_error:
        return chosen or [{COMPARATORS.key: _ERROR}]
    if chosen and not case.is_random:
        return chosen
    has_logprobs = any(_has_logprobs(answer, of_input_only=case.is_random) for answer in answers)
    return (*_EXACT, *(_LOGPROBS if has_logprobs else ()))


def _has_logprobs(answer: Generation, *, of_input_only: bool) -> bool:
    lists = (answer.input_tokens, None if of_input_only else answer.tokens)
    tokens = [token for each in lists for token in each or ()]
    return any(top.logprob is not None for token in tokens for top in (token, *token.top))
