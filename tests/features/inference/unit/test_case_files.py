"""Case files of the shapes that TGIS's own files have are read, and every fault has its file and line."""

from __future__ import annotations

import math
from pathlib import Path
from textwrap import dedent

import pytest

from toolbox.features.inference import case_files
from toolbox.features.inference.case_files import Case, can_stream
from toolbox.ground.kit.server_answers import Generation, ServerError, Token, ToolCall
from toolbox.ground.model.errors import ConfigurationError

EVERY_SHAPE = """
    # A comment
    - name: Empty
      request: {}
      response: {}
    - name: Empty batch
      request:
        params: {}
        requests: []
      response: {}
    - name: Greedy
      request:
        params:
          method: GREEDY
          stopping: {"maxNewTokens": 20, stop_sequences: ["zz", "🤖 \\nTran"], includeStopSequence: false}
          truncateInputTokens: 25
        prefixId: nested/path
        requests:
          - {"text":  "A very long story:\\n"}
      response:
        responses:
          - generatedTokenCount: 20
            inputTokenCount: 6
            stopReason: STOP_SEQUENCE
            stopSequence: "🤖 \\nTran"
            text: "I wasn\\u2019\\
            t sure"
    - name: Sampled batch with tokens
      singleShardOnly: true
      request:
        params:
          method: "SAMPLE"
          sampling: {seed: 99, top_k: 3, topP: 0.000000001, typical_p: 0.6, temperature: 1}
          decoding: {repetition_penalty: 2.5, lengthPenalty: {start_index: 8, decayFactor: 1.01}}
          response: {generatedTokens: true, inputTokens: true, token_logprobs: true, tokenRanks: true, topNTokens: 2}
        requests:
          - {"text": ""}
          - text: >
              Two lines
              in one
      response:
        responses:
          - seed: '18446744073709551615'
            inputTokens:
              - logprob: NaN
                text: <unk>
              - logprob: -15.049328
                rank: 22217
                text: ''''
                topTokens:
                  - logprob: -1.1141717
                    text: .
            tokens:
              - text: "\\u2581Once"
                topTokens:
                  - text: "\\u2581Once"
          - text: ' was walking'
    - name: Wrong
      request:
        params: {stopping: {maxNewTokens: 170}}
        requests: [{text: A}]
      error:
        code: INVALID_ARGUMENT
        message: max_new_tokens must be <= 169
    - name: Random
      skip_check: true  # the output is random
      request: {params: {method: SAMPLE}, requests: [{text: A}]}
      response:
        responses:
          - inputTokenCount: 3
    - name: Wrong
      request: {requests: [{text: A}]}
    - name: Tokenize
      request_type: tokenize
      request: {return_tokens: true, requests: [{text: The very}]}
      response: {responses: [{tokenCount: 2, tokens: [The, very]}]}
    - name: Limits
      request_type: model_info
      request: {modelId: m}
      response: {modelKind: DECODER_ONLY, max_sequence_length: 200}
    - name: Models
      request_type: models
      request: {}
      response: {data: [{id: m, max_model_len: 200}]}
    - name: Completion
      stream: false
      compare: [{comparator: similarity, threshold: 0.8}]
      request: {model: m, prompt: Once, max_tokens: 3, logprobs: 2, some_field_of_a_server: [1, {a: null}]}
      response:
        choices:
          - index: 0
            text: ' upon a'
            finish_reason: length
            logprobs: {tokens: [' upon', ' a'], token_logprobs: [-0.5, NaN], top_logprobs: [{' upon': -0.5}, null]}
        usage: {prompt_tokens: 1, completion_tokens: 2}
    - name: Chat
      request: {messages: [{role: user, content: Hi}]}
      response:
        choices:
          - message: {role: assistant, content: Hello}
            finish_reason: stop
            stop_reason: "!"
            logprobs: {content: [{token: Hello, logprob: -1, bytes: [72], top_logprobs: [{token: Hi, logprob: -2}]}]}
      """


def parse(text: str) -> list[Case]:
    return case_files.parse(dedent(text), source="f.yaml", suite="f")


def fault(text: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        parse(text)
    return str(caught.value)


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    return {case.name: case for case in parse(EVERY_SHAPE)}


def test_every_shape_is_read(cases: dict[str, Case]) -> None:
    assert [(case.name, case.protocol, case.requests) for case in cases.values()] == [
        ("Empty", "fmaas", 0),
        ("Empty batch", "fmaas", 0),
        ("Greedy", "fmaas", 1),
        ("Sampled batch with tokens", "fmaas", 2),
        ("Wrong", "fmaas", 1),
        ("Random", "fmaas", 1),
        ("Wrong #2", "fmaas", 1),
        ("Tokenize", "tokenize", 1),
        ("Limits", "model_info", 1),
        ("Models", "models", 1),
        ("Completion", "completions", 1),
        ("Chat", "chat", 1),
    ]


def test_a_request_stays_as_it_is_written(cases: dict[str, Case]) -> None:
    stopping = {"maxNewTokens": 20, "stop_sequences": ["zz", "🤖 \nTran"], "includeStopSequence": False}
    assert cases["Greedy"].request["params"]["stopping"] == stopping
    assert cases["Sampled batch with tokens"].request["requests"][1] == {"text": "Two lines in one\n"}


def test_fields_that_are_not_written_are_not_expected(cases: dict[str, Case]) -> None:
    assert cases["Greedy"].expected == (
        Generation("I wasn\u2019t sure", "STOP_SEQUENCE", "🤖 \nTran", input_token_count=6, generated_token_count=20),
    )
    assert cases["Empty"].expected == ()
    assert cases["Wrong #2"].expected is None


def test_tokens_have_logprobs_ranks_and_top_tokens(cases: dict[str, Case]) -> None:
    first, second = cases["Sampled batch with tokens"].expected or ()
    assert first.seed == 2**64 - 1
    assert first.tokens == (Token("\u2581Once", top=(Token("\u2581Once"),)),)
    without, with_logprob = first.input_tokens or ()
    assert without.logprob is not None
    assert math.isnan(without.logprob)
    assert with_logprob == Token("'", None, -15.049328, 22217, (Token(".", None, -1.1141717),))
    assert second == Generation(" was walking")


def test_flags_and_comparators_are_read(cases: dict[str, Case]) -> None:
    assert [name for name, case in cases.items() if case.is_single_shard_only] == ["Sampled batch with tokens"]
    assert [name for name, case in cases.items() if case.is_random] == ["Random"]
    assert cases["Completion"].compare == ({"comparator": "similarity", "threshold": 0.8},)
    assert cases["Completion"].stream is False


@pytest.mark.parametrize(
    ("fields", "retries"),
    [
        ("request: {prompt: x}", 2),
        ("request: {prompt: x}, retries: 0", 0),
        ("request: {prompt: x}, error: {status: 429}", 0),  # the refusal is the expected answer
        ("request: {prompt: x}, error: {status: 400}, retries: 3", 3),
        ("request: {requests: [{text: a}]}", 0),
    ],
)
def test_requests_over_http_are_retried_unless_an_error_is_expected(fields: str, retries: int) -> None:
    (case,) = case_files.parse(f"- {{name: a, {fields}}}", source="f.yaml", suite="f")
    assert case.retries == retries


def test_an_error_is_expected_in_place_of_a_text(cases: dict[str, Case]) -> None:
    error = ServerError("INVALID_ARGUMENT", "max_new_tokens must be <= 169")
    assert cases["Wrong"].expected == (Generation(error=error),)


def test_responses_of_openai_are_read(cases: dict[str, Case]) -> None:
    (completion,), (chat,) = cases["Completion"].expected or (), cases["Chat"].expected or ()
    assert (completion.text, completion.stop_reason, completion.input_token_count) == (" upon a", "MAX_TOKENS", 1)
    assert completion.tokens is not None
    assert completion.tokens[0] == Token(" upon", None, -0.5, None, (Token(" upon", None, -0.5),))
    assert (chat.text, chat.stop_reason, chat.stop_sequence) == ("Hello", "STOP_SEQUENCE", "!")
    assert chat.tokens == (Token("Hello", None, -1.0, None, (Token("Hi", None, -2.0),), (72,)),)


def test_the_tokens_of_a_text_are_its_input_tokens(cases: dict[str, Case]) -> None:
    assert cases["Tokenize"].expected == (Generation(input_token_count=2, input_tokens=(Token("The"), Token("very"))),)


def test_descriptions_of_models_are_expected_field_by_field(cases: dict[str, Case]) -> None:
    assert cases["Limits"].description == {"model_kind": "DECODER_ONLY", "max_sequence_length": 200}
    assert cases["Models"].description == {"data": [{"id": "m", "max_model_len": 200}]}
    assert cases["Models"].expected is None
    assert not can_stream(cases["Models"])


YAML_OF_TGIS = r"""
  # A comment before the first case, with another indentation
- name: Texts over several lines
  request:
    # A comment between the fields
    requests:
    - {"text":  "Titles.\n\nFuture:
      👨🚗 \nBatman:"}  # in a mapping on one line
    - text: >
        one
        two
    - {"text": "\t'''x'''"}
  response:
    responses:
    - inputTokens:
        - logprob: NaN
          text: ''''
        - text: <0x0A>
        - text: .
        - text: (
        - text: "\xEF\u013D\_"
      text: '.1) and:

        where'
      stopReason: MAX_TOKENS
#     seed: '1'
    - text: '

        The'
    - text: "wasn\u2019\
        t sure"

 # A comment at the end
"""


def test_the_yaml_of_tgis_is_read() -> None:
    (case,) = parse(YAML_OF_TGIS)
    assert [each["text"] for each in case.request["requests"]] == [
        "Titles.\n\nFuture: 👨🚗 \nBatman:",
        "one two\n",
        "\t'''x'''",
    ]
    first, second, third = case.expected or ()
    assert [token.text for token in first.input_tokens or ()] == ["'", "<0x0A>", ".", "(", "\xef\u013d\xa0"]
    assert (first.text, second.text, third.text) == (".1) and:\nwhere", "\nThe", "wasn\u2019t sure")


def test_a_file_may_be_a_mapping_of_cases() -> None:
    (case,) = parse("seed_test:\n  name: Seeds\n  request: {requests: [{text: a}, {text: a}]}\n")
    assert (case.name, case.requests, case.location) == ("Seeds", 2, "f.yaml:1")


def test_all_faults_are_reported_with_their_lines() -> None:
    text = """
        - name: a
          request:
            params:
              samplng: {top_k: 1}
              stopping: {max_new_tokens: -1}
            requests: [{text: no}]
        - name: b
          requst: {}
          response: {responses: [{tokens: [{text: a, ranks: 1}]}]}
        """
    assert fault(text).splitlines()[1:] == [
        "  f.yaml:7: `cases[0].request.requests[0].text` must be a valid string, not false",
        "  f.yaml:6: `cases[0].request.params.stopping.max_new_tokens` must be greater than or equal to 0, not -1",
        "  f.yaml:5: `cases[0].request.params.samplng` is an unknown field: did you mean sampling or stopping?",
        "  f.yaml:8: `cases[1].request` is missing",
        "  f.yaml:10: `cases[1].response.responses[0].tokens[0].ranks` is an unknown field: did you mean rank?",
        "  f.yaml:9: `cases[1].requst` is an unknown field: did you mean request or request_type?",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f.yaml: the document must be a list, not empty"),
        ("[]", "f.yaml: the file has no case"),
        ("{}", "f.yaml: the file has no case"),
        ("text", "f.yaml: the document must be a list, not a str"),
        ("- [", "f.yaml:2:1: broken YAML: did not find expected node content (while parsing a flow node)"),
        ("- &a [*a]", "f.yaml: the document has more than 500,000 values"),
        ("a: {}\nb: {}\na: {}\n", "f.yaml:3: `a` is already in line 1"),
        ("{a: {}, a: {}}", "f.yaml:1: `a` is already in line 1"),
        ("[" * 200_000, "f.yaml:1: values are nested more than 100 deep"),
    ],
)
def test_a_file_that_is_no_list_of_cases_is_a_fault(text: str, message: str) -> None:
    assert fault(text) == message


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("{name: a, request: {promt: x}}", "did you mean prompt or params?"),
        ("{name: a, request: {prompt: x, d: 2020-01-01}}", "is not a value of JSON: write a text in quotes"),
        ("{name: a, request: {prompt: x, t: .inf}}", "is not a value of JSON"),
        ("{name: a, request: {prompt: x, 1: 2}}", "the key 1 must be a text"),
        ("{name: a, request: {prompt: x, stream: true}}", "set `stream` beside the request, not in it"),
        ("{name: a, request: {}, stream: true}", "only a request for a text can be sent as a stream"),
        ("{name: a, request: {}, response: {responses: [{}]}}", "the response has 1 answer to 0 requests"),
        (
            "{name: a, skip_check: true, request: {requests: [{text: a}, {text: b}]}, response: {responses: [{}]}}",
            "the response has 1 answer to 2 requests",
        ),
        ("{name: a, request: {}, response: {}, error: {}}", "a `response` or an `error`, not both"),
        ("{name: a, request: {}, response: {responses: [{stopReason: DONE}]}}", "must be 'NOT_FINISHED', 'MAX_TOKENS'"),
        ("{name: a, request: {}, error: {cod: X}}", "did you mean code?"),
        ("{name: a, request: {}, compare: [{comparator: exct}]}", "unknown comparator `exct`: did you mean exact?"),
        ("{name: a, request: {}, compare: [{threshold: 1}]}", "the field `comparator` is missing, or not a name"),
        ("{name: a, request: {}, compare: [{comparator: regex, pattern: '('}]}", "is not an expression of RE2"),
        ("{name: a, request: {}, skip_check: true, compare: [{comparator: exact}]}", "has no effect"),
        ("{name: a, request: {}, response: {responses: [{tokens: [{text: a, logprob: -.inf}]}]}}", "must be finite"),
        (
            "{name: a, request: {requests: [{text: a}]}, retries: 1}",
            "`retries` has an effect only on requests over HTTP",
        ),
        ("{name: a, request: {prompt: x}, retries: 11}", "must be less than or equal to 10"),
        ("{name: a, request: {prompt: x}, retries: -1}", "must be greater than or equal to 0"),
        ("{name: a, request: {}, response: null}", "`response` has no value"),
        ("{name: a, request: {}, error: }", "`error` has no value"),
        ("{name: a, request: {}, compare: [{comparator: error}]}", "compares only an expected `error`"),
        ("{name: a, request: {}, error: {}, compare: [{comparator: exact}]}", "only the comparator `error`"),
        ('{name: "a\\nb", request: {}}', "must be one line of printable characters"),
        ("{name: a, request: {topK: 1, top_k: 1}}", "unknown field"),
        ("{name: a, request: {}, response: {data: [{id: a}]}}", "`cases[0].response.data` does not belong here: remo"),
        ("{name: a, request: {}, response: {usage: {prompt_tokens: 3}}}", "`cases[0].response.choices` is missing"),
        ("{name: a, request_type: tokenize, request: {params: {}}}", "`cases[0].request.params` does not belong here"),
        ("{name: a, request_type: models, request: {limit: 1}}", "`cases[0].request.limit` is an unknown field"),
        ("{name: a, request_type: model_info, request: {}, response: {maxTokens: 1}}", "did you mean max_new_tokens"),
        ("{name: a, request_type: model_info, request: {}, response: {modelKind: X}}", "must be 'DECODER_ONLY'"),
        ("{name: a, request_type: models, request: {}, response: {data: [{}]}}", "`cases[0].response.data[0].id` is"),
        ("{name: a, request_type: models, request: {}, response: {data: [{id: a, d: .nan}]}}", "not a value of JSON"),
        ("{name: a, request_type: models, request: {}, stream: true}", "only a request for a text"),
        ("{name: a, request_type: models, request: {}, skip_check: true}", "is not random: remove `skip_check`"),
        (
            "{name: a, request_type: models, request: {}, compare: [{comparator: exact}]}",
            "is compared by its fields: remove `compare`",
        ),
        ("{name: a, request: {}, response: {responses: [{seed: '99999999999999999999'}]}}", "must be less than"),
    ],
)
def test_a_fault_of_a_case_says_what_is_wrong(case: str, message: str) -> None:
    text = fault(f"- {case}")
    assert message in text
    assert "f.yaml:1: " in text


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ("[{mesage: {content: a}}]", "choices[0].mesage` is an unknown field: did you mean message?"),
        (
            "[{text: a, finish_resaon: stop}]",
            "choices[0].finish_resaon` is an unknown field: did you mean finish_reason",
        ),
        ("[{text: a, finish_reason: ''}]", "finish_reason` must be a reason, such as `stop` or `length`, not ''"),
        (
            "[{text: a, finish_reason: }]",
            "finish_reason` must have a value that can be compared, or be removed, not null",
        ),
        ("[{text: a, message: {content: a}}]", "has either a `text` or a `message`"),
        ("[{text: a, stop_reason: 7}]", "stop_reason` must be a stop string: the id of a token is not compared, not 7"),
        ("[{text: a, index: 1}]", "the `index` of the choices must be 0 to 0, each once"),
        ("[{text: a, logprobs: {}}]", "must have either `tokens` or `content`"),
        ("[{text: a, logprobs: {token_logprobs: [-1]}}]", "must have either `tokens` or `content`"),
        ("[{text: a, logprobs: {content: [], token_logprobs: [-1]}}]", "belong to `tokens`, not to `content`"),
        (
            "[{message: {tool_calls: [{functoin: {}}]}}]",
            "tool_calls[0].functoin` is an unknown field: did you mean fun",
        ),
        (
            "[{message: {tool_calls: [{function: {arguments: '{\"a\": '}}]}}]",
            "arguments` is '{\"a\": ': expecting value",
        ),
        ("[{}]", "answer 1 of the response has no fields, so nothing would be compared"),
        ("[{text: a}, {text: b}], usage: {prompt_tokens: 1}", "the `usage` of several choices is not compared"),
    ],
)
def test_a_fault_of_a_response_of_openai_says_what_is_wrong(choices: str, message: str) -> None:
    text = fault(f"- name: a\n  request: {{prompt: x}}\n  response: {{choices: {choices}}}")
    assert message in text
    assert ("f.yaml:1: the case 'a': " if message.startswith("answer") else "f.yaml:3: `cases[0].response") in text


@pytest.mark.parametrize(
    "case",
    [
        "{name: a, request: {requests: [{text: a}]}, response: {responses: [{text: }]}}",
        "{name: a, request: {requests: [{text: a}]}, response: {responses: [{}]}}",
        "{name: a, request: {requests: [{text: a}]}, response: {responses: [{}]}, compare: [{comparator: exact}]}",
        "{name: a, request: {prompt: a}, error: {code: }}",
        "{name: a, request_type: model_info, request: {}, response: {}}",
        "{name: a, request_type: models, request: {}, response: {data: []}}",
    ],
)
def test_an_expectation_that_compares_nothing_is_a_fault(case: str) -> None:
    assert any(words in fault(f"- {case}") for words in ("nothing would be compared", "must have a value"))


def test_arguments_of_a_tool_may_be_a_mapping_or_a_json_text() -> None:
    text = """
        - name: a
          request: {messages: [{role: user, content: a}]}
          response: {choices: [{message: {tool_calls: [
            {function: {arguments: {city: Paris}}}, {function: {arguments: '{"city": "Paris"}'}}]}}]}
        """
    (case,) = parse(text)
    (answer,) = case.expected or ()
    assert answer.tool_calls == (ToolCall(arguments='{"city": "Paris"}'),) * 2


def test_a_file_that_cannot_be_read_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "large.yaml").write_bytes(b" " * (case_files.LARGEST + 1))
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    for name, message in (
        ("none.yaml", "does not exist"),
        ("large.yaml", "more than 4,194,304"),
        ("binary.yaml", "cannot be read"),
        ("", "is not a regular file"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            case_files.load(tmp_path / name)


def test_text_that_looks_like_a_reference_is_text() -> None:
    (case,) = parse("- {name: '@x', request: {prompt: '{@y} *$@z'}}")
    assert (case.name, case.request["prompt"]) == ("@x", "{@y} *$@z")


def test_a_value_that_may_be_text_is_named_with_its_line(caplog: pytest.LogCaptureFixture) -> None:
    parse("- {name: a, request: {prompt: '3.10', temperature: 1e-1}}\n- {name: b, request: {prompt: x, stop: [on]}}")
    assert caplog.messages == ['f.yaml:2: `on` is read as true: write "on" for the text, or true']
