"""The check `answers` compares each answer with the expected one, and never passes a case without an answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path, PurePath
from textwrap import dedent
from typing import Any

import pytest

from toolbox.features.inference import answer_records, case_files, suites
from toolbox.features.inference.checks import answers
from toolbox.ground.model.cases import CaseOutcome, CaseResult
from toolbox.ground.model.evidence import Evidence, Judgement
from toolbox.ground.model.verdicts import Cause
from toolbox.records.runs import junit_files

CASES = """
    - name: greedy
      request: {params: {response: {generatedTokens: true}}, requests: [{text: a}]}
      response:
        responses:
          - {text: Once upon, stopReason: MAX_TOKENS, generatedTokenCount: 2, tokens: [{text: Once}, {text: ' upon'}]}
"""
NOTHING = "nothing was compared: the case has no `response`; the answer is complete"
BATCH = """
    - name: batch
      request: {requests: [{text: a}, {text: b}]}
      response: {responses: [{text: A}, {text: B}]}
"""
WRONG = """
    - name: wrong
      request: {requests: [{text: a}]}
      error: {code: INVALID_ARGUMENT, message: denied}
"""
WHOLE = {
    "text": "Once upon",
    "stop_reason": "MAX_TOKENS",
    "generated_token_count": 2,
    "tokens": [{"text": "Once"}, {"text": " upon"}],
}
CHUNKS: list[dict[str, Any]] = [
    {"index": 0, "text": "", "raw": {"inputTokenCount": 1}},
    {"index": 0, "text": "Once", "generated_token_count": 1, "stop_reason": None},
    {"index": 0, "text": " upon", "generated_token_count": 2, "stop_reason": "MAX_TOKENS"},
]


def answer(case: str = "f/greedy", **fields: Any) -> dict[str, Any]:
    """Return an answer to `greedy`, with other fields."""
    record = {"case": case, "stream": False, "seconds": 0.25, "error": None, "fault": None, **fields}
    return {
        **record,
        "generations": [{"stop_reason": "MAX_TOKENS", **each} for each in fields.get("generations", [WHOLE])],
    }


class Judged:
    """Judges answers, and reads the results."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "src").mkdir()
        (directory / "files").mkdir()

    def write(self, cases: str, *records: dict[str, Any] | str, **how: Any) -> None:
        """Write the cases and the answers to them."""
        parsed = case_files.parse(dedent(cases), source="f.yaml", suite="f")
        sent, expected = suites.describe(parsed, **{"protocols": ["fmaas"], "streams": False, **how})
        (self.directory / "src/cases.json").write_text(json.dumps(sent, allow_nan=False))
        (self.directory / "src/expectations.json").write_text(json.dumps(expected, allow_nan=False))
        lines = [each if isinstance(each, str) else json.dumps(each) + "\n" for each in records]
        (self.directory / "files/answers.jsonl").write_text("".join(lines))

    def judge(self, **fields: Any) -> Judgement:
        """Return the judgement."""
        return answers.Check.model_validate(fields).judge(Evidence(self.directory))

    def rows(self) -> list[CaseResult]:
        """Return the results of all cases, as reports read them."""
        return list(junit_files.read(self.directory, answers.RESULTS))

    def row(self, cases: str, record: dict[str, Any], **how: Any) -> CaseResult:
        """Return the result of the only case."""
        self.write(cases, record, **how)
        self.judge()
        (row,) = self.rows()
        return row


@pytest.fixture
def judged(tmp_path: Path) -> Judged:
    return Judged(tmp_path)


@pytest.mark.parametrize("name", ["src/cases.json", "src/expectations.json"])
def test_a_file_that_the_workload_has_changed_is_not_trusted(judged: Judged, name: str) -> None:
    judged.write(CASES, answer())
    evidence = Evidence(judged.directory, changed=frozenset({name}))
    judgement = answers.Check(cases="src/./cases.json").judge(evidence)
    assert judgement.passed is False
    assert PurePath(judgement.message.split()[0]) == PurePath(name)
    assert judgement.message.endswith("is not as it was sent: the workload has changed it")
    assert answers.Check().finished(evidence) is None


def test_right_answers_pass_and_become_rows(judged: Judged) -> None:
    judged.write(CASES, answer(), answer(stream=True, chunks=CHUNKS), streams=True)
    judgement = judged.judge()
    assert (judgement.passed, judgement.message) == (True, "2 passed")
    assert [(row.suite, row.name, row.outcome, row.seconds) for row in judged.rows()] == [
        ("f", "greedy", "passed", 0.25),
        ("f", "greedy (stream)", "passed", 0.25),
    ]


def test_a_request_that_was_refused_before_passes_with_a_remark(judged: Judged) -> None:
    row = judged.row(CASES, answer(refusals=2))
    remark = "the server refused 2 requests for now (429 or 503 with Retry-After), and then answered"
    assert (row.outcome, row.message) == (CaseOutcome.PASSED, remark)
    judgement = judged.judge()
    assert (judgement.passed, judgement.message) == (True, "1 passed; 1 case passed with a remark")


def test_a_request_that_is_refused_again_and_again_fails(judged: Judged) -> None:
    error = {"code": "HTTP 503", "message": "busy", "status": 503}
    row = judged.row(CASES, answer(refusals=2, error=error, generations=[]))
    assert row.outcome is CaseOutcome.FAILED
    assert row.message.endswith("busy (sent again 2 times)")


def test_a_wrong_token_is_shown_with_its_context(judged: Judged) -> None:
    wrong = {**WHOLE, "text": "Once there", "tokens": [{"text": "Once"}, {"text": " there", "logprob": -0.5}]}
    row = judged.row(CASES, answer(generations=[wrong]))
    assert row.outcome is CaseOutcome.FAILED
    assert row.message.startswith(
        "the text differs at character 6: token 2 is ' there' (logprob -0.5), expected ' upon'"
    )
    assert "expected: 'Once' >>' upon'<<" in row.text
    judgement = judged.judge()
    assert judgement.passed is False
    assert judgement.message.splitlines()[0] == "1 of 1 case did not pass (1 failed)"


def test_every_answer_of_a_batch_is_judged(judged: Judged) -> None:
    row = judged.row(BATCH, answer("f/batch", generations=[{"text": "A"}, {"text": "C"}]))
    assert row.message == "answer 2 of 2: the text differs at character 1: 'C', expected 'B'"


@pytest.mark.parametrize("texts", [[], ["A"], ["A", "B", "B"]])
def test_a_batch_with_too_few_or_too_many_answers_fails(judged: Judged, texts: list[str]) -> None:
    row = judged.row(BATCH, answer("f/batch", generations=[{"text": text} for text in texts]))
    assert (row.outcome, row.message) == ("failed", f"the batch has {len(texts)} answers to 2 requests")


@pytest.mark.parametrize(
    ("case", "fields", "outcome"),
    [
        (WRONG, {"error": {"code": "INVALID_ARGUMENT", "status": None, "message": "denied"}}, "passed"),
        (WRONG, {"error": {"code": "INTERNAL", "status": None, "message": "denied"}}, "failed"),
        (WRONG, {"error": {"code": "INVALID_ARGUMENT", "message": "other"}}, "failed"),
        (WRONG, {"generations": [WHOLE]}, "failed"),
        (WRONG, {"generations": []}, "failed"),
        (WRONG, {"fault": "connection lost", "error": {"code": "INVALID_ARGUMENT", "message": "denied"}}, "error"),
        (CASES, {"case": "f/greedy", "error": {"code": "INTERNAL", "message": "oh"}}, "failed"),
        (CASES, {"case": "f/greedy", "fault": "half a stream", "generations": [WHOLE]}, "error"),
    ],
)
def test_errors_are_judged_but_faults_never_pass(
    judged: Judged, case: str, fields: dict[str, Any], outcome: str
) -> None:
    assert judged.row(case, answer(**{"case": "f/wrong", "generations": [], **fields})).outcome == outcome


def test_the_end_of_the_text_that_arrived_is_evidence_of_half_a_stream(judged: Judged) -> None:
    chunks = [{"text": "x" * 300}, {"text": "It was\x1b"}]
    row = judged.row(CASES, answer(fault="half a stream; 2 chunks arrived", chunks=chunks))
    assert row.message == "no complete answer: half a stream; 2 chunks arrived"
    assert row.text.splitlines()[1] == f"  the text that arrived: ...'{'x' * 193}It was\\x1b'"


def test_a_fault_that_the_message_shows_whole_has_no_further_text(judged: Judged) -> None:
    assert judged.row(CASES, answer(fault="the connection was lost")).text == ""
    assert len(judged.row(CASES, answer(fault="x" * 1000)).text) == 1000


def test_a_difference_that_two_comparators_find_is_shown_once(judged: Judged) -> None:
    wrong = {**WHOLE, "text": "Once there", "tokens": [{"text": "Once"}, {"text": " there", "logprob": -0.5}]}
    compare = "\n      compare: [{comparator: exact}, {comparator: logprobs}]"
    text = judged.row(CASES.rstrip() + compare, answer(generations=[wrong])).text
    assert text.count("token 2 is ' there'") == 1


def test_results_that_cannot_be_written_are_an_error_of_the_infrastructure(judged: Judged) -> None:
    judged.write(CASES, answer())
    (judged.directory / answers.RESULTS).mkdir()
    judgement = judged.judge()
    assert judgement.cause is Cause.INFRASTRUCTURE
    assert judgement.message == "answers.junit.xml cannot be written: Is a directory"
    assert answers.Check().finished(Evidence(judged.directory)) is None


def test_a_case_without_an_answer_is_an_error(judged: Judged) -> None:
    judged.write(CASES + BATCH, answer())
    assert judged.judge().passed is False
    assert [(row.name, row.outcome, row.message) for row in judged.rows()] == [
        ("greedy", "passed", ""),
        ("batch", "error", "there is no answer"),
    ]


def test_after_the_end_of_the_attempt_only_answered_cases_count(judged: Judged) -> None:
    judged.write(CASES + BATCH, answer())
    report = answers.Check().finished(Evidence(judged.directory))
    assert report is not None
    assert (str(report), report.is_partial) == ("1 passed", True)


def test_an_attempt_without_answers_has_no_rows(judged: Judged) -> None:
    judged.write(CASES)
    assert answers.Check().finished(Evidence(judged.directory)) is None
    assert judged.judge().message == "files/answers.jsonl is empty: no case was answered"


def test_a_case_with_two_answers_is_an_error(judged: Judged) -> None:
    judged.write(CASES, answer(), answer())
    assert judged.judge().passed is False
    assert [(row.outcome, row.message) for row in judged.rows()] == [("error", "the case has several answers")]


def test_an_answer_to_an_unknown_case_fails_the_check(judged: Judged) -> None:
    judged.write(CASES, answer(), answer("f/other"))
    judgement = judged.judge()
    assert (judgement.passed, judgement.line) == (False, 2)
    assert judgement.message == "files/answers.jsonl:2 answers 'f/other', which was not sent"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("not json\n", "Invalid JSON"),
        ("[]\n", "must be an object"),
        ('{"case": 5}\n', "case: must be a valid string"),
        ('{"case": "x", "seconds": NaN}\n', "seconds: must be a finite number"),
        ('{"case": "x", "generations": [{"text": 5}]}\n', "generations.0.text: must be a valid string"),
        (
            '{"case": "x", "generations": [{"tokens": [{"text": "a", "logprob": "x"}]}]}\n',
            "generations.0.tokens.0.logprob",
        ),
        ('{"case": "x", "generations": [{"text": "' + "a" * 200_001 + '"}]}\n', "at most 200000 characters"),
        ('{"case": "\\ud800"}\n', "Invalid JSON"),
        ('{"x": ' + "[" * 100_000 + "\n", "Invalid JSON"),
    ],
)
def test_a_line_that_is_not_an_answer_fails_the_check(judged: Judged, line: str, message: str) -> None:
    judged.write(CASES, line, answer())
    judgement = judged.judge()
    assert judgement.passed is False
    assert judgement.message.startswith("files/answers.jsonl:1 is not an answer: ")
    assert message in judgement.message
    assert judgement.line == 1
    assert [row.outcome for row in judged.rows()] == ["passed"], "other lines are judged"


def test_the_torn_last_line_of_a_dead_worker_is_no_answer(judged: Judged) -> None:
    judged.write(CASES + BATCH, answer(), '{"case": "f/batch", "gener')
    assert [row.outcome for row in (judged.judge(), judged.rows())[1]] == ["passed", "error"]


def test_hostile_text_of_a_server_cannot_break_the_results(judged: Judged) -> None:
    text = "\x1b[31m]]><failure>\u202e\x00\uffff" * 100
    row = judged.row(CASES, answer(generations=[{"text": text}], fault=None))
    assert row.outcome is CaseOutcome.FAILED
    assert row.message.isprintable()
    assert judged.row(CASES, answer(fault=text)).message.isprintable()


@pytest.mark.parametrize(
    ("chunks", "message"),
    [
        (None, "the stream has no chunks"),
        ([], "the stream has no chunks"),
        (CHUNKS[:2], "the chunks add up to 'Once', but the whole text is 'Once upon'"),
        ([*CHUNKS[:2], {**CHUNKS[2], "stop_reason": "NOT_FINISHED"}], "no chunk of the stream has a stop reason"),
        (
            [CHUNKS[0], {**CHUNKS[1], "stop_reason": "MAX_TOKENS"}, CHUNKS[2]],
            "2 chunks of the stream have a stop reason",
        ),
        (
            [CHUNKS[0], {**CHUNKS[1], "stop_reason": "MAX_TOKENS"}, {"text": " upon"}],
            "the stop reason is in chunk 2 of 3, and text follows",
        ),
        (
            [CHUNKS[0], {**CHUNKS[1], "generated_token_count": 3}, CHUNKS[2]],
            "the number of generated tokens falls from 3 to 2 in the stream",
        ),
        (
            [*CHUNKS[:2], {**CHUNKS[2], "generated_token_count": 0}],
            "the number of generated tokens falls from 1 to 0 in the stream",
        ),
        ([*CHUNKS[:2], {**CHUNKS[2], "generated_token_count": 5}], "the stream ends with 5 generated tokens"),
        ([*CHUNKS, {**CHUNKS[0], "index": 1}], "a chunk belongs to answer 2 of the batch, which has 1 answer"),
        ([{**chunk, "index": 1} for chunk in CHUNKS], "the chunks add up to '', but the whole text is 'Once upon'"),
    ],
)
def test_a_stream_keeps_its_rules(judged: Judged, chunks: list[Any] | None, message: str) -> None:
    judged.write(CASES, answer(), answer(stream=True, chunks=chunks), streams=True)
    assert judged.judge().passed is False
    (row,) = [row for row in judged.rows() if row.name.endswith("(stream)")]
    assert message in row.text


@pytest.mark.parametrize(("text", "is_right"), [("Once", True), ("Onze", False)])
def test_of_a_long_stream_only_the_known_chunks_keep_the_rules(judged: Judged, text: str, is_right: bool) -> None:
    chunks = [CHUNKS[0], {**CHUNKS[1], "text": text}]
    judged.write(CASES, answer(), answer(stream=True, chunks=chunks, chunks_left_out=1), streams=True)
    assert judged.judge().passed is is_right


def test_each_stream_of_a_batch_keeps_the_rules(judged: Judged) -> None:
    case = BATCH.replace("name: batch", "name: batch\n      stream: true")
    whole = [{"text": "A"}, {"text": "B"}]
    chunks = [{"index": index, **part, "stop_reason": "MAX_TOKENS"} for index, part in enumerate(whole)]
    judged.write(
        case, *(answer("f/batch", generations=whole, stream=stream, chunks=chunks) for stream in (False, True))
    )
    assert judged.judge().message == "2 passed"


@pytest.mark.parametrize(("limit", "outcome"), [(200, "passed"), (199, "failed")])
def test_a_description_of_the_model_is_judged_by_its_fields(judged: Judged, limit: int, outcome: str) -> None:
    case = "- {name: limits, request_type: model_info, request: {}, response: {maxSequenceLength: 200}}"
    record = answer("f/limits", generations=[], response={"maxSequenceLength": limit, "maxNewTokens": 9})
    assert judged.row(case, record).outcome == outcome


def test_a_case_for_the_list_of_models_needs_the_protocol_of_openai(judged: Judged) -> None:
    case = "- {name: models, request_type: models, request: {}, response: {data: [{id: m}]}}"
    record = answer("f/models", generations=[], response={"data": [{"id": "m"}]})
    assert judged.row(case, record, protocols=["openai"]).outcome == "passed"
    judged.write(case, protocols=["fmaas"])
    sent = json.loads((judged.directory / "src/cases.json").read_text())
    assert sent["cases"] == []


@pytest.mark.parametrize(("given", "outcome"), [("x", "passed"), ("y", "failed"), (None, "failed")])
def test_the_stop_sequence_is_compared(judged: Judged, given: str | None, outcome: str) -> None:
    case = """
        - name: stop
          request: {requests: [{text: a}]}
          response: {responses: [{text: A, stopSequence: x}]}
        """
    record = answer("f/stop", generations=[{"text": "A", "stop_sequence": given}])
    assert judged.row(case, record).outcome == outcome


TOOLS = """
    - name: tools
      request: {messages: [{role: user, content: a}]}
      response: {choices: [{message: {content: "", tool_calls: [{function: {name: f, arguments: {n: 1, k: true}}}]}}]}
"""


@pytest.mark.parametrize("compare", [None, [{"comparator": "similarity"}]])
@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"name": "f", "arguments": '{"k": true, "n": 1.0}', "id": "x"}, ""),
        ({"name": "g", "arguments": '{"n": 1, "k": true}'}, "the name of tool call 1 is 'g', expected 'f'"),
        ({"name": "f", "arguments": '{"n": 1, "k": 1}'}, 'the arguments of tool call 1 are \'{"n": 1, "k": 1}\', e'),
        (
            {"name": "f", "arguments": '{"n": 1, "k": '},
            'the arguments of tool call 1 are \'{"n": 1, "k": \', which is n',
        ),
        ({"name": "f", "arguments": '{"n": 1, "n": 1, "k": true}'}, "the arguments of tool call 1 are "),
        ({"name": "f", "arguments": "[" * 100_000}, "the arguments of tool call 1 are '[[["),
        ({"name": "f"}, "the arguments of tool call 1 are '', which is not JSON, expected "),
        (None, "the answer calls no tool, expected 'f'"),
    ],
)
def test_calls_of_tools_are_compared_with_each_comparator(
    judged: Judged, compare: list[dict[str, Any]] | None, call: dict[str, Any] | None, message: str
) -> None:
    generation = {"text": "", "stop_reason": "TOOL_CALLS", "tool_calls": [call] if call is not None else None}
    row = judged.row(TOOLS, answer("f/tools", generations=[generation]), protocols=["openai"], compare=compare)
    assert row.outcome == ("failed" if message else "passed")
    assert row.message.startswith(message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ('{"city": "Paris"}', ""),
        (None, ""),
        ('{"city": "Paris"', 'the arguments of tool call 1 are \'{"city": "Paris"\', which is not JSON'),
    ],
)
def test_arguments_that_a_case_does_not_expect_must_still_be_json(
    judged: Judged, arguments: str | None, message: str
) -> None:
    call = {"name": "f", "arguments": arguments}
    record = answer("f/tools", generations=[{"text": "", "stop_reason": "TOOL_CALLS", "tool_calls": [call]}])
    row = judged.row(TOOLS.replace(", arguments: {n: 1, k: true}", ""), record, protocols=["openai"])
    assert (row.outcome, row.message) == ("failed" if message else "passed", message)


@pytest.mark.parametrize("name", ["reasoning_content", "refusal", "role"])
def test_the_parts_of_a_chat_message_are_compared(judged: Judged, name: str) -> None:
    case = f"- {{name: chat, request: {{messages: [{{}}]}}, response: {{choices: [{{message: {{{name}: a}}}}]}}}}"
    for text, outcome in (("a", "passed"), ("b", "failed"), (None, "failed")):
        record = answer("f/chat", generations=[{"text": "x", name: text}])
        assert judged.row(case, record, protocols=["openai"]).outcome == outcome


@pytest.mark.parametrize(("offsets", "outcome"), [([[0, 1]], "passed"), ([[0, 2]], "failed"), (None, "failed")])
def test_the_offsets_of_tokens_are_compared(judged: Judged, offsets: Any, outcome: str) -> None:
    case = """
        - name: offsets
          request: {return_offsets: true, requests: [{text: a}]}
          response: {responses: [{tokenCount: 1, offsets: [{start: 0, end: 1}]}]}
        """
    given = {"offsets": [{"start": start, "end": end} for start, end in offsets]} if offsets else {}
    record = answer("f/offsets", generations=[], response={"responses": [{"tokenCount": 1, **given}]})
    assert judged.row(case, record).outcome == outcome


@pytest.mark.parametrize(
    ("request_", "asks"),
    [
        ("{prompt: a, logprobs: 2}", True),
        ("{prompt: a, logprobs: 0}", False),
        ("{messages: [{}], logprobs: true}", True),
        ("{messages: [{}], logprobs: false}", False),
        ("{requests: [{text: a}], params: {response: {generatedTokens: true, token_logprobs: true}}}", True),
        ("{requests: [{text: a}], params: {response: {generatedTokens: true}}}", False),
    ],
)
@pytest.mark.parametrize("logprob", [None, -0.5])
def test_logprobs_that_were_not_sent_are_a_remark(
    judged: Judged, request_: str, asks: bool, logprob: float | None
) -> None:
    case = f"- {{name: l, request: {request_}, compare: [{{comparator: prefix, text: A}}]}}"
    record = answer("f/l", generations=[{"text": "A", "tokens": [{"text": "A", "logprob": logprob}]}])
    row = judged.row(case, record, protocols=["fmaas", "openai"])
    assert row.outcome == "passed"
    assert ("asks for logprobs, but the answer has none" in row.message) is (asks and logprob is None)


def test_a_case_that_compares_nothing_says_so(judged: Judged) -> None:
    row = judged.row("- {name: any, request: {requests: [{text: a}]}}", answer("f/any"))
    assert (row.outcome, row.message) == ("passed", NOTHING)
    assert judged.judge().message == "1 passed; 1 case passed with a remark"


def test_skipped_cases_say_why(judged: Judged) -> None:
    cases = """
        - {name: shard, single_shard_only: true, request: {requests: [{text: a}]}}
        - {name: chat, request: {messages: [{role: user, content: a}]}}
        - {name: sent, request: {requests: [{text: a}]}}
        """
    judged.write(cases, answer("f/sent"), shards=2)
    assert judged.judge().passed is True
    assert [(row.name, row.outcome, row.message) for row in judged.rows()] == [
        ("sent", "passed", NOTHING),
        ("shard", "skipped", "single_shard_only: the server has 2 shards"),
        ("chat", "skipped", "the server does not speak openai, only fmaas"),
    ]


@pytest.mark.parametrize(("count", "outcome"), [(3, "skipped"), (4, "failed")])
def test_of_a_random_answer_only_the_input_is_compared(judged: Judged, count: int, outcome: str) -> None:
    case = """
        - name: random
          skip_check: true
          request: {requests: [{text: a}]}
          response: {responses: [{inputTokenCount: 3, text: other}]}
        """
    row = judged.row(case, answer("f/random", generations=[{"text": "some", "input_token_count": count}]))
    assert row.outcome == outcome
    assert row.message.startswith("skip_check: " if count == 3 else "input_token_count is 4, expected 3")


def test_expected_logprobs_of_a_random_output_are_not_compared(judged: Judged) -> None:
    case = """
        - name: random
          skip_check: true
          request: {requests: [{text: a}]}
          response: {responses: [{inputTokenCount: 3, tokens: [{text: a, logprob: -1}]}]}
        """
    assert (
        judged.row(case, answer("f/random", generations=[{"text": "b", "input_token_count": 3}])).outcome == "skipped"
    )


def test_a_cell_whose_cases_were_all_skipped_has_tested_nothing(judged: Judged) -> None:
    judged.write("- {name: chat, request: {messages: [{role: user}]}}")
    judgement = judged.judge()
    assert judgement.passed is False
    assert judgement.message == "0 cases judged (1 skipped), but at least 1 must be judged"


@pytest.mark.parametrize(("reason", "outcome"), [("EOS_TOKEN", "passed"), ("ERROR", "failed"), (None, "failed")])
def test_without_an_expectation_any_complete_answer_is_right(judged: Judged, reason: str | None, outcome: str) -> None:
    case = "- {name: any, request: {requests: [{text: a}]}}"
    assert judged.row(case, answer("f/any", generations=[{"text": "x", "stop_reason": reason}])).outcome == outcome


def test_an_empty_batch_has_no_answers(judged: Judged) -> None:
    case = "- {name: empty, request: {}, response: {}}"
    assert judged.row(case, answer("f/empty", generations=[])).outcome == "passed"
    assert judged.row(case, answer("f/empty")).outcome == "failed"


@pytest.mark.parametrize(("tokens", "outcome"), [(["The", "very"], "passed"), (["The"], "failed"), (5, "failed")])
def test_the_tokens_of_a_text_are_read_from_the_response(judged: Judged, tokens: object, outcome: str) -> None:
    case = """
        - name: tokens
          request: {return_tokens: true, requests: [{text: a}]}
          response: {responses: [{tokenCount: 2, tokens: [The, very]}]}
        """
    response = {"responses": [{"tokenCount": 2, "tokens": tokens}]}
    assert judged.row(case, answer("f/tokens", generations=[], response=response)).outcome == outcome


@pytest.mark.parametrize(
    ("compare", "text", "outcome"),
    [
        ([{"comparator": "prefix", "text": "On"}], "Only", "passed"),
        ([{"comparator": "similarity", "threshold": 0.5}], "Onze upoz", "passed"),
        ([{"comparator": "similarity", "threshold": 0.99}], "Onze upoz", "failed"),
        ([{"comparator": "error", "message": "ignore"}], "Onze upoz", "failed"),
        (None, "Onze upon", "failed"),
    ],
)
def test_the_comparators_of_the_specification_are_used(
    judged: Judged, compare: list[dict[str, Any]] | None, text: str, outcome: str
) -> None:
    row = judged.row(CASES, answer(generations=[{**WHOLE, "text": text}]), compare=compare)
    assert row.outcome == outcome


@pytest.mark.parametrize(("given", "outcome"), [({}, "passed"), ({"tokenCount": 1}, "failed")])
def test_tokens_are_not_compared_by_the_comparators_of_texts(
    judged: Judged, given: dict[str, Any], outcome: str
) -> None:
    case = """
        - name: tokens
          request: {returnTokens: true, requests: [{text: ""}]}
          response: {responses: [{tokenCount: 0}]}
        """
    record = answer("f/tokens", generations=[], response={"responses": [given]})  # protobuf leaves out zeros
    assert judged.row(case, record, compare=[{"comparator": "logprobs"}]).outcome == outcome


def test_logprobs_that_the_case_gives_are_compared(judged: Judged) -> None:
    case = """
        - name: logprobs
          request: {requests: [{text: a}]}
          response: {responses: [{text: x, inputTokens: [{text: a, logprob: NaN}], tokens: [{text: x, logprob: -0.5}]}]}
        """

    def outcome(logprob: float, of_input: float | None) -> CaseOutcome:
        tokens = {"tokens": [{"text": "x", "logprob": logprob}], "input_tokens": [{"text": "a", "logprob": of_input}]}
        return judged.row(case, answer("f/logprobs", generations=[{"text": "x", **tokens}])).outcome

    assert [outcome(-0.5, None), outcome(-0.6, None), outcome(-0.5, -1.0)] == ["passed", "failed", "failed"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.write_text("{}"),
        lambda file: file.write_text('{"cases": [{"name": "x", "stream": false}]}'),
        lambda file: file.unlink(),
        lambda file: file.write_bytes(b"\xff"),
    ],
)
def test_without_the_cases_nothing_is_judged(judged: Judged, damage: Callable[[Path], object]) -> None:
    judged.write(CASES, answer())
    damage(judged.directory / "src/cases.json")
    judgement = judged.judge()
    assert judgement.passed is False
    assert "cases.json" in judgement.message or "no expectation for the case 'x'" in judgement.message


@pytest.mark.parametrize(("text", "outcome"), [("12", "passed"), ("nonsense", "failed")])
def test_the_comparators_of_a_case_without_a_response_are_used(judged: Judged, text: str, outcome: str) -> None:
    case = "- {name: greedy, request: {requests: [{text: a}]}, compare: [{comparator: regex, pattern: '[0-9]+'}]}"
    assert judged.row(case, answer(generations=[{**WHOLE, "text": text}])).outcome == outcome


@pytest.mark.parametrize("reason", ["NOT_FINISHED", "CANCELLED", "ERROR", None])
@pytest.mark.parametrize("compare", ["compare: [{comparator: prefix}]", "skip_check: true"])
def test_half_an_answer_is_wrong_although_the_case_gives_no_stop_reason(
    judged: Judged, compare: str, reason: str | None
) -> None:
    response = "response: {responses: [{text: Once}]}"
    case = f"- {{name: greedy, request: {{requests: [{{text: a}}]}}, {response}, {compare}}}"
    row = judged.row(case, answer(generations=[{**WHOLE, "stop_reason": reason}]))
    assert (row.outcome, row.message) == ("failed", f"answer 1 of 1 did not end: its stop reason is {reason}")


def test_a_file_that_cannot_be_read_to_its_end_fails_the_check(judged: Judged, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_records, "LONGEST_LINE", 1000)
    judged.write(CASES, answer(), "x" * 2000 + "\n")
    judgement = judged.judge()
    assert (judgement.passed, judgement.message) == (False, "files/answers.jsonl:2 has more than 1000 bytes")


def test_errors_fail_the_check_although_only_failures_are_named(judged: Judged) -> None:
    judged.write(CASES, answer(fault="the connection was lost"))
    with pytest.raises(ValueError, match="`error`"):
        judged.judge(fail_on=["failed"])


HTTP_ERROR = """
    - name: long
      request: {{prompt: a}}
      error: {{{error}}}
"""


@pytest.mark.parametrize(
    ("expected", "in_stream", "outcome"),
    [
        ("status: 400, message: too long", {"code": "ERROR", "message": "too long"}, "passed"),
        ("code: HTTP 400, status: 400, message: too long", {"code": "ERROR", "message": "too long"}, "passed"),
        ("code: bad, status: 400", {"code": "bad", "message": "x"}, "passed"),
        ("code: bad, status: 400", {"code": "bad", "message": "x", "status": 400}, "passed"),
        ("status: 400, message: too long", {"code": "ERROR", "message": "other"}, "failed"),
        ("status: 400, message: too long", {"code": "HTTP 500", "message": "too long", "status": 500}, "failed"),
        ("code: bad, status: 400", {"code": "ERROR", "message": "x"}, "failed"),
        ("status: 400", {"code": "ERROR", "message": "x"}, "failed"),  # else any error would pass
        ("code: HTTP 400", {"code": "ERROR", "message": "x"}, "failed"),
    ],
)
def test_an_expected_error_may_come_inside_a_stream(
    judged: Judged, expected: str, in_stream: dict[str, Any], outcome: str
) -> None:
    cases = HTTP_ERROR.format(error=expected)
    record = answer("f/long", error=in_stream, generations=[], stream=True)
    whole = answer("f/long", error={"code": "HTTP 400", "message": "too long", "status": 400}, generations=[])
    judged.write(cases, whole, record, streams=True, protocols=("openai",))
    judged.judge()
    assert judged.rows()[1].outcome == outcome


@pytest.mark.parametrize(("rule", "outcome"), [("ignore", "failed"), ("contains", "passed")])
def test_an_error_inside_a_stream_must_have_something_that_is_compared(judged: Judged, rule: str, outcome: str) -> None:
    cases = (
        HTTP_ERROR.format(error="status: 400, message: too long")
        + f"""
      compare: [{{comparator: error, message: {rule}}}]
"""
    )
    record = answer("f/long", error={"code": "ERROR", "message": "too long: 9"}, generations=[], stream=True)
    whole = answer("f/long", error={"code": "HTTP 400", "message": "too long: 9", "status": 400}, generations=[])
    judged.write(cases, whole, record, streams=True, protocols=("openai",))
    judged.judge()
    assert [row.outcome for row in judged.rows()] == ["passed", outcome]
