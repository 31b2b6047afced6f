"""One run of the project inference with healthy and faulty servers: each gets its own verdict, cause and evidence."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from xml.etree.ElementTree import Element

import pytest
import yaml
from defusedxml import ElementTree

from tests.features.inference.servers.inference.__main__ import SENTENCE
from toolbox.ground.system import places, processes
from toolbox.testing import Outcome, Workspace

ROOT: Final = places.builtin_root()
FAULTS: Final = ("none", "never_ready", "dies", "kills_its_worker", "slow", "sends_nonsense", "wrong_token")
FMAAS_FAULTS: Final = ("dies", "wrong_token")
WRONG_TOKEN: Final = "token 7 is ' day' (logprob -0.1), expected ' night' (logprob -0.1)"
DEATH: Final = "the server ended with status 137 (SIGKILL)"


def case(name: str, text: str, **request: object) -> dict[str, Any]:
    """Return a case for a completion with a text."""
    return {
        "name": name,
        "request": {"prompt": "Tell a story.", **request},
        "response": {"choices": [{"text": text, "finish_reason": "length"}]},
    }


def cases() -> list[dict[str, Any]]:
    """Return a case, one with logprobs, and another one."""
    sentence = case("Sentence", "".join(SENTENCE), logprobs=2)
    logprobs = {"tokens": list(SENTENCE), "token_logprobs": [-0.1] * len(SENTENCE)}
    sentence["response"]["choices"][0]["logprobs"] = logprobs
    return [case("First", "b"), sentence, case("Last", "b")]


def fmaas_case() -> dict[str, Any]:
    """Return a case of fmaas for the same text."""
    options = {"generatedTokens": True, "tokenLogprobs": True, "topNTokens": 2}
    tokens = [{"text": text, "logprob": -0.1} for text in SENTENCE]
    response = {"text": "".join(SENTENCE), "stopReason": "MAX_TOKENS", "generatedTokenCount": 10, "tokens": tokens}
    return {
        "name": "Sentence",
        "request": {"params": {"response": options}, "requests": [{"text": "Tell a story."}]},
        "response": {"responses": [response]},
    }


def overrides(workspace: Workspace) -> dict[str, Any]:
    """Return the changes to the configuration: a framework and a config for each scripted server."""
    shipped = yaml.safe_load((ROOT / "config/inference.yaml").read_text())
    framework = {"env": {"PYTHONPATH": str(ROOT)}, "protocols": ["openai"]}
    scripted = {
        fault: {
            **framework,
            "command": [
                "@inference.python",
                "-m",
                "tests.features.inference.servers.inference",
                fault,
                "--port={port}",
            ],
            "ready": {"timeout": 4 if fault == "never_ready" else 30, "path": "/health"},
        }
        for fault in FAULTS
    }
    for fault in FMAAS_FAULTS:
        command = [
            "@inference.python",
            "-m",
            "tests.features.inference.servers.inference.fmaas_program",
            fault,
            "--grpc_port={grpc_port}",
        ]
        scripted[f"fmaas_{fault}"] = {**framework, "command": command, "protocols": ["fmaas"]}
    configs = [{"name": fault, "deployment_framework": fault, "resources": {"gpu": None}} for fault in scripted]
    slow_start = {"check": "metric", "metric": "ready_seconds", "upper": 0.0001, "when": {"config": "wrong_token"}}
    return {
        "frameworks": {**shipped["frameworks"], **scripted},
        "tests": [
            {
                "model": "scripted",
                "configs": configs[: len(FAULTS)],
                "cases": [str(workspace.directory / "cases.yaml")],
            },
            {
                "model": "scripted-fmaas",
                "configs": configs[len(FAULTS) :],
                "cases": [str(workspace.directory / "fmaas.yaml")],
            },
        ],
        "inference.timeout": 4,
        "inference.concurrency": 1,
        "matrix.retries": {"infrastructure": 1, "backoff": {"first": 0.1}},
        "matrix.checks": [*shipped["matrix"]["checks"], slow_start],
        "host.capture_state.enabled": False,
    }


def classname(config: str) -> str:
    """Return the name of the class of the cases of a config in `junit.xml`."""
    if config.startswith("fmaas_"):
        return f"model=scripted-fmaas,config={config},test=cases.fmaas"
    return f"model=scripted,config={config},test=cases.cases"


@dataclass(frozen=True)
class Ended:
    """A run that has ended."""

    workspace: Workspace
    outcome: Outcome

    @property
    def directory(self) -> Path:
        return self.workspace.run_directory()

    def cell(self, config: str) -> Mapping[str, Any]:
        """Return the step of the cell of a config in `summary.json`."""
        steps = self.workspace.summary()["steps"]
        (cell,) = [step for step in steps if step["kind"] == "cell" and f"config={config}," in step["name"]]
        return dict(cell)

    def verdict(self, config: str) -> tuple[str, str | None]:
        cell = self.cell(config)
        return cell["verdict"], cell["cause"]

    def message(self, config: str) -> list[str]:
        return list(self.cell(config)["message"].splitlines())

    def journal(self, config: str, event: str) -> list[Mapping[str, Any]]:
        """Return the events of a kind of the cell of a config."""
        lines = (self.directory / "journal.jsonl").read_text().splitlines()
        events = [json.loads(line) for line in lines]
        return [each for each in events if each["event"] == event and f"config={config}," in each.get("step", "")]

    def row(self, config: str, name: str) -> Element:
        """Return the element of a case in `junit.xml`."""
        root: Element = ElementTree.fromstring((self.directory / "junit.xml").read_text())
        (row,) = root.findall(f".//testcase[@classname='{classname(config)}'][@name='{name}']")
        return row

    def outcomes(self, config: str) -> dict[str, str]:
        """Return for each case of a config whether it passed, failed or was an error."""
        root: Element = ElementTree.fromstring((self.directory / "junit.xml").read_text())
        rows = root.findall(f".//testcase[@classname='{classname(config)}']")
        return {row.get("name", ""): row[0].tag if len(row) else "passed" for row in rows}

    def table(self, config: str) -> str:
        """Return the row of the cell in the table on the terminal, with single spaces."""
        lines = self.outcome.stdout.partition("\nstep ")[2].splitlines()
        return " ".join(next(line for line in lines if f"config={config}," in line).split())

    @property
    def page(self) -> str:
        return (self.directory / "report.html").read_text()


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """Run all servers, two at a time."""
    workspace = Workspace(tmp_path_factory.mktemp("faults") / "workspace")
    contents = {"cases": cases(), "fmaas": [fmaas_case()], "overrides": overrides(workspace)}
    workspace.write({f"{name}.yaml": yaml.safe_dump(content) for name, content in contents.items()})
    return Ended(workspace, workspace.run("project", "run", "inference", "--overrides=overrides.yaml", "--jobs=2"))


def test_each_server_has_its_own_verdict_and_cause(ended: Ended) -> None:
    assert {config: ended.verdict(config) for config in (*FAULTS, *(f"fmaas_{fault}" for fault in FMAAS_FAULTS))} == {
        "none": ("passed", None),
        "never_ready": ("error", "infrastructure"),
        "dies": ("failed", "product"),
        "kills_its_worker": ("error", "infrastructure"),
        "slow": ("failed", "product"),
        "sends_nonsense": ("failed", "product"),
        "wrong_token": ("failed", "check"),
        "fmaas_dies": ("failed", "product"),
        "fmaas_wrong_token": ("failed", "check"),
    }
    assert ended.outcome.exit_code == 3, str(ended.outcome)
    assert "of 9 cells: 1 passed, 2 error, 6 failed" in ended.outcome.stdout


def test_the_table_on_the_terminal_shows_each_verdict_with_its_checks_and_tests(ended: Ended) -> None:
    rows = {
        "none": "passed 3 of 3 6 passed",
        "never_ready": "error infrastructure 0 of 4",
        "dies": "failed product 0 of 3 1 passed, 5 error",
        "slow": "failed product 1 of 3 4 passed, 2 error",
        "wrong_token": "failed check 2 of 4 4 passed, 2 failed",
    }
    for config, row in rows.items():
        assert ended.table(config).startswith(f"model=scripted,config={config},test=cases {row} ")


def test_nothing_is_left_running(ended: Ended) -> None:
    assert processes.marked(ended.workspace.directory.resolve()) == []
    reports = [json.loads(path.read_text()) for path in ended.directory.glob("*__test/*/attempt-*/files/worker.json")]
    assert len(reports) == len(FAULTS) + len(FMAAS_FAULTS)  # two of `never_ready`, and none of the killed worker
    assert None not in {report["server"]["exit_status"] for report in reports}


def test_a_server_that_is_never_ready(ended: Ended) -> None:
    fault = "the server was not ready within 4 s: GET /health: HTTP status 503"
    assert ended.message("never_ready") == [
        f"server: {fault}",
        "the last line of files/server.log: listening",
        f"the verdict of attempt 1 was error (infrastructure): server: {fault}",
    ]
    assert len(ended.journal("never_ready", "AttemptEnded")) == 2
    (judged, _) = [each for each in ended.journal("never_ready", "CheckJudged") if each["check"] == "server"]
    assert (judged["file"], judged["line"]) == ("files/server.log", 1)
    assert ended.page.count(f"{fault}\nthe last line of files/server.log: listening") >= 3
    assert (
        f"error: 001__test/001__model=scripted,config=never_ready,test=cases (infrastructure)\n  server: {fault}"
        in (ended.outcome.stdout)
    )


def test_a_server_that_dies_during_a_request(ended: Ended) -> None:
    assert ended.message("dies")[:3] == [
        f"server: {DEATH}",
        "the last line of files/server.log: out of memory",
        "answers: 5 of 6 cases did not pass (1 passed, 5 error)",
    ]
    assert ended.message("dies")[3].startswith("cases.First (stream): no complete answer: the stream ended ")
    assert ended.message("dies")[-1] == f"exit_status: exit status 70, expected 0; the last line of stderr: {DEATH}"
    assert ended.outcomes("dies") == {
        "First": "passed",
        "First (stream)": "error",
        **dict.fromkeys(["Sentence", "Sentence (stream)", "Last", "Last (stream)"], "error"),
    }
    error = ended.row("dies", "First (stream)")[0]
    assert "1 chunk arrived" in (error.get("message") or "")
    assert (error.text or "").endswith("the text that arrived: 'b'")
    assert ended.row("dies", "Last")[0].get("message") == f"no complete answer: the request was not sent: {DEATH}"


def test_a_worker_that_is_killed_is_started_again(ended: Ended) -> None:
    assert ended.message("kills_its_worker")[:2] == [
        "exit_status: exit status 137 (SIGKILL), expected 0",
        "the verdict of attempt 1 was error (infrastructure): exit_status: exit status 137 (SIGKILL), expected 0",
    ]
    assert ended.outcomes("kills_its_worker")["First"] == "passed"


def test_a_server_that_is_too_slow(ended: Ended) -> None:
    assert ended.message("slow")[:2] == [
        "answers: 2 of 6 cases did not pass (4 passed, 2 error)",
        "cases.Sentence: no complete answer: the time limit of 4 s was exceeded",
    ]
    row = ended.row("slow", "Sentence (stream)")
    message = row[0].get("message") or ""
    assert message.startswith("no complete answer: the time limit of 4 s was exceeded; ")
    assert re.search(r"chunks arrived, the last one after [0-3]\.", message)
    assert 4 <= float(row.get("time") or 0) < 30
    assert "the text that arrived: 'It was a dark" in (row[0].text or "")


def test_a_start_that_is_slower_than_its_bound_fails_a_check(ended: Ended) -> None:
    message = ended.message("wrong_token")[-1]
    assert re.fullmatch(r"metric: ready_seconds is [0-9.]+ s, above its upper bound 0.0001 s", message)


def test_a_server_that_answers_nonsense(ended: Ended) -> None:
    shown = r"the answer is not JSON: Expecting value: line 1 column 1 (char 0): '<html>\x1b[31mlogin</html>'"
    assert ended.message("sends_nonsense")[1] == f"cases.First: no complete answer: {shown}"
    assert ended.row("sends_nonsense", "First")[0].get("message") == f"no complete answer: {shown}"
    assert "has the type 'text/html'" in (ended.row("sends_nonsense", "First (stream)")[0].get("message") or "")
    assert "<html>\\x1b" not in ended.page
    assert r"&lt;html&gt;\x1b[31mlogin&lt;/html&gt;" in ended.page
    assert "\x1b" not in ended.outcome.stdout


@pytest.mark.parametrize("config", ["wrong_token", "fmaas_wrong_token"])
@pytest.mark.parametrize("name", ["Sentence", "Sentence (stream)"])
def test_a_wrong_token_at_position_7(ended: Ended, config: str, name: str) -> None:
    failure = ended.row(config, name)[0]
    assert failure.get("message") == f"the text differs at character 26: {WRONG_TOKEN}"
    before = "'It' ' was' ' a' ' dark' ' and' ' stormy'"
    assert [line.strip() for line in (failure.text or "").splitlines()][1:6] == [
        "expected: It was a dark and stormy >>night; the rain",
        "actual:   It was a dark and stormy >>day; the rain",
        f"expected: {before} >>' night'<< ';' ' the' ' rain'",
        f"actual:   {before} >>' day'<< ';' ' the' ' rain'",
        "top tokens, actual: ' day' (logprob -0.1), ' something' (logprob -2.5)",
    ]
    assert ended.outcomes("wrong_token")["Last"] == "passed"
    assert f"{name}: the text differs at character 26: {WRONG_TOKEN}" in ended.outcome.stdout


def test_a_server_of_fmaas_that_dies_during_a_stream(ended: Ended) -> None:
    assert ended.message("fmaas_dies")[:2] == [
        f"server: {DEATH}",
        "the last line of files/server.log: out of memory",
    ]
    assert ended.outcomes("fmaas_dies") == {"Sentence": "passed", "Sentence (stream)": "error"}
    message = ended.row("fmaas_dies", "Sentence (stream)")[0].get("message") or ""
    assert message.startswith("no complete answer: UNAVAILABLE: ")
    assert message.endswith(f"; {DEATH}")
