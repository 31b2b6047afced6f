"""`inference record_cases` writes the answers of a running server as a case file that the same server passes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.features.inference.servers.inference import http_server
from tests.features.inference.servers.reference_server import ReferenceServer
from toolbox.features.inference import case_files, local_worker, suites
from toolbox.features.inference.checks import answers
from toolbox.features.inference.local_worker import RunningServer
from toolbox.features.inference.suites import ServerProtocol
from toolbox.ground.model.evidence import Evidence, Judgement
from toolbox.testing import Outcome, Workspace

FMAAS = """
# Comments are lost.
- name: Empty
  request: {}
- name: Tokens
  stream: true
  request:
    params:
      stopping: {maxNewTokens: 4}
      response: {generatedTokens: true, inputTokens: true, tokenLogprobs: true, tokenRanks: true, topNTokens: 3}
    requests: [{text: once upon}, {text: "\\n"}]
- name: Sampled
  request: {params: {method: SAMPLE, sampling: {seed: 7}, stopping: {maxNewTokens: 9}}, requests: [{text: "é"}]}
- name: Random
  skip_check: true
  request: {params: {method: SAMPLE, response: {inputTokens: true}}, requests: [{text: a}]}
- name: Too long
  response: {responses: [{text: old}]}
  request: {params: {stopping: {maxNewTokens: 999}}, requests: [{text: a}]}
- name: Split
  singleShardOnly: true
  request: {returnTokens: true, requests: [{text: "né!"}, {text: ""}]}
- name: Limits
  request_type: model_info
  request: {}
"""
OPENAI = """
completion:
  name: Completion
  compare: [{comparator: exact}, {comparator: logprobs}]
  request: {prompt: [once, upon], max_tokens: 5, temperature: 0, logprobs: 2}
chat:
  name: Chat
  request: {messages: [{role: user, content: hi}], max_tokens: 5, seed: 3, logprobs: true, top_logprobs: 2}
random: {name: Random, skip_check: true, request: {prompt: a, max_tokens: 3}}
wrong: {name: Wrong, request: {prompt: a, max_tokens: -1}, error: {status: 400}}
models: {name: Models, request_type: models, request: {}}
"""
GREEDY = "- {name: greedy, request: {prompt: a, temperature: 0}}\n- {name: second, request: {prompt: a, seed: 1}}"


def record(workspace: Workspace, text: str, *flags: str, output: str = "new.yaml") -> Outcome:
    workspace.write({"cases.yaml": text})
    return workspace.run("inference", "record_cases", "--cases=cases.yaml", f"--output={output}", *flags)


def judge(directory: Path, file: Path, server: RunningServer, protocols: list[ServerProtocol]) -> Judgement:
    """Send the cases of a file to a server, also as streams, and judge the answers."""
    sent, expectations = suites.describe(case_files.load(file), protocols=protocols)
    local_worker.run(directory, {"server": server.settings(10)}, sent, say=print)
    (directory / "src/expectations.json").write_text(json.dumps(expectations))
    return answers.Check().judge(Evidence(directory))


def recorded(workspace: Workspace) -> list[dict[str, Any]]:
    content = yaml.safe_load((workspace.directory / "new.yaml").read_text())
    return list(content.values()) if isinstance(content, dict) else content


def test_recorded_cases_of_fmaas_pass_on_the_same_server(
    workspace: Workspace, server: ReferenceServer, tmp_path: Path
) -> None:
    outcome = record(workspace, FMAAS, f"--grpc={server.grpc_address}")
    assert outcome.exit_code == 0, str(outcome)
    assert outcome.stdout.splitlines()[0] == "7 cases recorded in new.yaml, 1 of them with an error"
    by_name = {case["name"]: case for case in recorded(workspace)}
    assert by_name["Empty"]["response"] == {}
    assert by_name["Random"]["response"]["responses"][0].keys() == {"inputTokenCount", "inputTokens"}
    assert by_name["Too long"].keys() == {"name", "error", "request"}
    assert by_name["Tokens"]["response"]["responses"][0]["inputTokens"][0]["logprob"] == "NaN"
    assert by_name["Split"]["singleShardOnly"] is True
    running = RunningServer(grpc=server.grpc_address)
    judgement = judge(tmp_path / "attempt", workspace.directory / "new.yaml", running, ["fmaas"])
    assert (judgement.passed, judgement.message) == (True, "9 passed, 2 skipped")


def test_recorded_cases_of_openai_pass_on_the_same_server(
    workspace: Workspace, server: ReferenceServer, tmp_path: Path
) -> None:
    outcome = record(workspace, OPENAI, f"--url={server.url}")
    assert outcome.exit_code == 0, str(outcome)
    content = yaml.safe_load((workspace.directory / "new.yaml").read_text())
    assert list(content) == ["completion", "chat", "random", "wrong", "models"]
    assert content["wrong"]["error"]["status"] == 400
    assert content["models"]["response"]["data"][0]["id"] == server.model
    assert "created" not in content["models"]["response"]["data"][0]
    judgement = judge(tmp_path / "attempt", workspace.directory / "new.yaml", RunningServer(url=server.url), ["openai"])
    assert (judgement.passed, judgement.message) == (True, "6 passed, 2 skipped")


def test_both_protocols_can_be_recorded_together(workspace: Workspace, server: ReferenceServer) -> None:
    both = FMAAS + "".join(f"- {json.dumps(case)}\n" for case in yaml.safe_load(OPENAI).values())
    outcome = record(workspace, both, f"--url={server.url}", f"--grpc={server.grpc_address}")
    assert outcome.exit_code == 0, str(outcome)
    assert len(recorded(workspace)) == 12


def test_a_file_is_replaced_only_with_force(workspace: Workspace, server: ReferenceServer) -> None:
    workspace.write({"new.yaml": "mine"})
    outcome = record(workspace, FMAAS, f"--grpc={server.grpc_address}")
    assert outcome.exit_code == 2
    assert "new.yaml exists: choose another file, or add --force" in outcome.stderr
    assert (workspace.directory / "new.yaml").read_text() == "mine"
    assert record(workspace, FMAAS, f"--grpc={server.grpc_address}", "--force").exit_code == 0
    assert len(recorded(workspace)) == 7


def test_nothing_is_written_if_a_case_has_no_complete_answer(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_KEY", "s3cret")

    def script(request: http_server.HttpRequest) -> list[bytes]:
        body = http_server.choice("the key is s3cret", "length") if "temperature" in request.body else {"x": 1}
        return [http_server.response(body)]

    with http_server.serving(script) as server:
        outcome = record(workspace, GREEDY, f"--url={server.url}", "--api_key_variable=SOME_KEY")
        assert outcome.exit_code == 3, str(outcome)
        assert "1 fault in the answers to 2 cases: new.yaml was not written" in outcome.stderr
        assert "\n  second: choices of the answer is not a list" in outcome.stderr
        assert not (workspace.directory / "new.yaml").exists()
        first = GREEDY.splitlines()[0]
        assert record(workspace, first, f"--url={server.url}", "--api_key_variable=SOME_KEY").exit_code == 0
    assert "s3cret" not in (workspace.directory / "new.yaml").read_text() + str(outcome)


def test_an_output_that_is_not_a_file_is_refused_and_left_alone(workspace: Workspace) -> None:
    pipe = workspace.directory / "new.yaml"
    os.mkfifo(pipe)
    outcome = record(workspace, FMAAS, "--grpc=127.0.0.1:9", "--force")
    assert outcome.exit_code == 2
    assert "new.yaml must be a file in an existing directory" in outcome.stderr
    assert pipe.is_fifo()


def test_an_output_that_is_a_link_to_nothing_is_refused_and_left_alone(workspace: Workspace) -> None:
    link = workspace.directory / "new.yaml"
    link.symlink_to("elsewhere.yaml")
    outcome = record(workspace, FMAAS, "--grpc=127.0.0.1:9")
    assert outcome.exit_code == 2
    assert "new.yaml must be a file in an existing directory" in outcome.stderr
    assert link.is_symlink()


def test_an_output_that_cannot_be_written_is_refused(workspace: Workspace, server: ReferenceServer) -> None:
    outcome = record(workspace, FMAAS, f"--grpc={server.grpc_address}", output="/proc/new.yaml")
    assert outcome.exit_code == 2
    assert "--output: /proc/new.yaml cannot be written: No such file or directory" in outcome.stderr


@pytest.mark.parametrize(
    ("flags", "text", "message"),
    [
        ((), FMAAS, "write --url=http://HOST:PORT or --grpc=HOST:PORT"),
        (("--url=http://user:pw@host",), FMAAS, "without user, key or query"),
        (("--url=http://127.0.0.1:9",), FMAAS, "'Empty' cannot be sent: the server does not speak fmaas"),
        (("--url=http://127.0.0.1:9",), "- {name: a, request: {prompt: x}}", "the output is random"),
        (("--url=http://127.0.0.1:9",), "- {nam: a}", "cases.yaml:1"),
        (("--url=http://127.0.0.1:9", "--api_key_variable=NO_KEY"), GREEDY, "NO_KEY is not set"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_sent(
    workspace: Workspace, flags: tuple[str, ...], text: str, message: str
) -> None:
    outcome = record(workspace, text, *flags)
    assert (outcome.exit_code, message in outcome.stderr) == (2, True), str(outcome)
    assert "pw" not in outcome.stderr


def test_the_directory_of_the_output_must_exist(workspace: Workspace) -> None:
    outcome = record(workspace, GREEDY, "--url=http://127.0.0.1:9", output="no/new.yaml")
    assert outcome.exit_code == 2
    assert "no/new.yaml must be a file in an existing directory" in outcome.stderr
