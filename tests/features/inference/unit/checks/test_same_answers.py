"""The check `same_answers` compares the answers of two cells, without expected texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from toolbox.features.inference import case_files, suites
from toolbox.features.inference.checks import same_answers
from toolbox.ground.model.evidence import Evidence, Judgement, Reference
from toolbox.ground.model.verdicts import Cause
from toolbox.records.runs import junit_files

CASES = """
- {name: greedy, request: {requests: [{text: a}]}}
- {name: tokens, request_type: tokenize, request: {requests: [{text: a}]}}
- {name: limits, request_type: model_info, request: {}}
- {name: random, skip_check: true, request: {requests: [{text: a}]}}
"""


def answer(text: str, case: str = "f/greedy", **fields: Any) -> dict[str, Any]:
    return {"case": case, "generations": [{"text": text, "stop_reason": "MAX_TOKENS", **fields}]}


def write(directory: Path, *answers: dict[str, Any]) -> Path:
    """Write the files of a cell."""
    for folder in ("src", "files"):
        (directory / folder).mkdir(parents=True, exist_ok=True)
    cases = case_files.parse(CASES, source="f.yaml", suite="f")
    _, expectations = suites.describe(cases, protocols=["fmaas"])
    (directory / "src/expectations.json").write_text(json.dumps(expectations))
    (directory / "files/answers.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in answers))
    return directory


def judge(directory: Path, reference: Reference | None, **fields: Any) -> Judgement:
    check = same_answers.Check.model_validate({"to": {"config": "float32"}, **fields})
    return check.judge(Evidence(directory, reference=reference))


def compared(tmp_path: Path, reference: dict[str, Any], actual: dict[str, Any], **fields: Any) -> Judgement:
    other = write(tmp_path / "other", reference)
    return judge(write(tmp_path / "cell", actual), Reference("float32", {}, directory=other), **fields)


def rows(tmp_path: Path) -> list[tuple[str, str, str]]:
    results = junit_files.read(tmp_path / "cell", same_answers.RESULTS)
    return [(row.suite, row.name, str(row.outcome)) for row in results]


def test_equal_answers_pass(tmp_path: Path) -> None:
    judgement = compared(tmp_path, answer("x"), answer("x"))
    assert (judgement.passed, judgement.message) == (True, "1 answer compared with those of `float32` (1 passed)")
    assert rows(tmp_path) == [("f as float32", "greedy", "passed")]


@pytest.mark.parametrize(("tokens", "passed"), [(("b", "c"), True), (("b", "x"), False)])
def test_by_default_answers_may_differ_where_their_tokens_are_near(
    tmp_path: Path, tokens: tuple[str, str], passed: bool
) -> None:
    top = [{"text": text, "logprob": -1.0} for text in tokens]
    sides = [answer(text, tokens=[{"text": text, "top": top}]) for text in ("b", "c")]
    assert compared(tmp_path, *sides).passed is passed


def test_results_that_cannot_be_written_are_an_error_of_the_infrastructure(tmp_path: Path) -> None:
    (tmp_path / "cell" / same_answers.RESULTS).mkdir(parents=True)
    judgement = compared(tmp_path, answer("x"), answer("x"))
    assert judgement.cause is Cause.INFRASTRUCTURE
    assert judgement.message == "same_answers.junit.xml cannot be written: Is a directory"


def test_the_comparators_are_configured(tmp_path: Path) -> None:
    similar = [{"comparator": "similarity", "threshold": 0.5}]
    assert compared(tmp_path, answer("abcd"), answer("abxd"), compare=similar).passed
    judgement = compared(tmp_path, answer("abcd"), answer("abxd"))
    assert judgement.passed is False
    assert judgement.message.splitlines()[0] == "1 of 1 answer differ from those of `float32` (1 failed)"
    assert judgement.cases is not None


@pytest.mark.parametrize(
    ("reference", "actual", "passed"),
    [
        ({"error": {"code": "A", "message": "x"}}, {"error": {"code": "A", "message": "y"}}, True),
        ({"error": {"code": "A", "message": "x"}}, {"error": {"code": "B", "message": "x"}}, False),
        ({"error": {"code": "A", "message": "x"}}, {}, False),
        ({"fault": "lost"}, {}, False),
        ({}, {"fault": "lost"}, False),
        ({"generations": []}, {}, False),
    ],
)
def test_errors_faults_and_batches_are_compared(
    tmp_path: Path, reference: dict[str, Any], actual: dict[str, Any], passed: bool
) -> None:
    assert compared(tmp_path, {**answer("x"), **reference}, {**answer("x"), **actual}).passed is passed


@pytest.mark.parametrize("comparator", ["first_divergence", "exact", "similarity"])
def test_calls_of_tools_are_compared_without_their_ids(tmp_path: Path, comparator: str) -> None:
    calls = [[{"name": "f", "arguments": arguments, "id": arguments}] for arguments in ('{"n": 1}', '{"n":1}', "{}")]
    for other, passed in ((calls[1], True), (calls[2], False), (None, False)):
        given = answer("", tool_calls=other)
        compare = [{"comparator": comparator}]
        assert compared(tmp_path, answer("", tool_calls=calls[0]), given, compare=compare).passed is passed


def test_a_comparator_that_compares_no_texts_is_not_enough() -> None:
    with pytest.raises(ValidationError, match="needs another comparator than `error`"):
        same_answers.Check.model_validate({"to": {"config": "a"}, "compare": [{"comparator": "error"}]})


def test_after_the_first_divergence_calls_of_tools_may_differ(tmp_path: Path) -> None:
    top = [{"text": "a", "logprob": -0.6}, {"text": "b", "logprob": -0.7}]
    answers = [
        answer("", tokens=[{"text": text, "logprob": -0.6, "top": top}], tool_calls=[{"name": text}]) for text in "ab"
    ]
    assert compared(tmp_path, *answers).passed is True
    assert compared(tmp_path, *answers, compare=[{"comparator": "similarity"}]).passed is False


def test_random_cases_and_cases_of_one_cell_are_skipped(tmp_path: Path) -> None:
    other = write(tmp_path / "other", answer("x", "f/random"))
    cell = write(tmp_path / "cell", answer("y", "f/random"), answer("y"), answer("y", "f/unknown"))
    judgement = judge(cell, Reference("float32", {}, directory=other))
    assert (
        judgement.message == "0 answers compared with those of `float32` (2 skipped), but at least 1 must be compared"
    )
    assert [row[2] for row in rows(tmp_path)] == ["skipped", "skipped"]


def test_descriptions_of_models_are_not_compared(tmp_path: Path) -> None:
    limits = {"case": "f/limits", "generations": [], "response": {"maxNewTokens": 9}}
    assert compared(tmp_path, limits, limits).passed is False
    assert [row[2] for row in rows(tmp_path)] == ["skipped"]


@pytest.mark.parametrize(("count", "passed"), [(1, True), (2, False)])
def test_the_tokens_of_a_text_must_be_equal(tmp_path: Path, count: int, passed: bool) -> None:
    sides = [
        {"case": "f/tokens", "generations": [], "response": {"responses": [{"tokenCount": each}]}}
        for each in (1, count)
    ]
    assert compared(tmp_path, *sides).passed is passed


@pytest.mark.parametrize(
    ("reference", "passed"),
    [
        (None, None),
        (Reference("c", is_missing=True, fault="skipped"), None),
        (Reference("c", fault="it failed"), False),
    ],
)
def test_without_the_other_cell_nothing_is_compared(
    tmp_path: Path, reference: Reference | None, passed: bool | None
) -> None:
    judgement = judge(write(tmp_path, answer("x")), reference)
    assert judgement.passed is passed
    assert judgement.message


def test_an_answer_that_only_the_reference_has_fails(tmp_path: Path) -> None:
    other = write(tmp_path / "other", answer("x"), {**answer("x"), "stream": True}, answer("x", case="f/unknown"))
    judgement = judge(write(tmp_path / "cell", answer("x")), Reference("float32", {}, directory=other))
    assert not judgement.passed
    assert rows(tmp_path)[1:] == [("f as float32", "greedy (stream)", "failed")]
