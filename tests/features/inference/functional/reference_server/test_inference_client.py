"""The client of inference servers gets the same answers from the reference server over both protocols."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.features.inference.servers.inference.asking import LIMITS, ask_fmaas, ask_openai
from tests.features.inference.servers.reference_server import ReferenceServer, command, environment
from toolbox.features.inference.client import load_generator
from toolbox.features.inference.client.answer_format import Answer, Case
from toolbox.features.inference.client.fmaas_client import FmaasClient
from toolbox.features.inference.client.load_generator import Sample, Step
from toolbox.features.inference.client.openai_client import OpenAiClient

FMAAS: dict[str, object] = {
    "requests": [{"text": "abc"}],
    "params": {
        "stopping": {"maxNewTokens": 6},
        "response": {"generatedTokens": True, "tokenLogprobs": True, "topNTokens": 2},
    },
}
COMPLETION: dict[str, object] = {"prompt": "abc", "max_tokens": 6, "temperature": 0, "logprobs": 2}
CHAT: dict[str, object] = {
    "messages": [{"role": "user", "content": "abc"}],
    "max_tokens": 6,
    "temperature": 0,
    "logprobs": True,
    "top_logprobs": 2,
}


def ask(server: ReferenceServer, protocol: str, request: dict[str, object]) -> list[Answer]:
    if protocol == "fmaas":
        answers = ask_fmaas(server.grpc_address, request, stream=True, limits=LIMITS)
    else:
        answers = [
            *ask_openai(server.url, request, protocol=protocol),
            *ask_openai(server.url, request | {"stream": True}, protocol=protocol),
        ]
    assert [answer.fault for answer in answers] == [None, None]
    assert [answer.error for answer in answers] == [None, None]
    return answers


@pytest.mark.parametrize(("protocol", "request_"), [("fmaas", FMAAS), ("completions", COMPLETION), ("chat", CHAT)])
def test_a_stream_adds_up_to_the_whole(server: ReferenceServer, protocol: str, request_: dict[str, object]) -> None:
    whole, stream = ask(server, protocol, request_)
    (generation,) = whole.generations
    assert generation == stream.generations[0]
    assert len(generation.text or "") == generation.generated_token_count == len(generation.tokens or ()) == 6
    assert generation.stop_reason == "MAX_TOKENS"
    assert generation.input_token_count
    assert len(stream.chunks) > 1


def test_both_protocols_have_the_same_tokens(server: ReferenceServer) -> None:
    (fmaas,) = ask(server, "fmaas", FMAAS)[0].generations
    (completion,) = ask(server, "completions", COMPLETION)[0].generations
    assert fmaas.text == completion.text
    for one, other in zip(fmaas.tokens or (), completion.tokens or (), strict=True):
        assert one.text == other.text
        assert one.logprob == pytest.approx(other.logprob)
        assert [top.text for top in one.top or ()] == [top.text for top in other.top or ()]


def test_both_protocols_refuse_the_same_request(server: ReferenceServer) -> None:
    (fmaas,) = ask_fmaas(server.grpc_address, {"requests": [{"text": "ABC"}]})
    (completion,) = ask_openai(server.url, {"prompt": "ABC"})
    assert fmaas.error
    assert completion.error
    assert (fmaas.error.code, completion.error.status) == ("INVALID_ARGUMENT", 400)
    assert "character 'A'" in str(fmaas.error)
    assert "character 'A'" in str(completion.error)


@pytest.mark.parametrize("protocol", ["fmaas", "completions"])
def test_a_load_has_a_sample_for_each_request(server: ReferenceServer, protocol: str) -> None:
    request: dict[str, object] = FMAAS if protocol == "fmaas" else COMPLETION | {"model": server.model}
    cases = [Case(name="a", protocol=protocol, request=request)]
    step = Step(rate=20, seconds=1, arrivals="constant")

    samples: list[Sample] = []
    recorder = SimpleNamespace(add=samples.append)

    async def load() -> None:
        client = FmaasClient(server.grpc_address, LIMITS) if protocol == "fmaas" else OpenAiClient(server.url, LIMITS)
        try:
            await load_generator.run(client, cases, step, LIMITS, recorder=recorder)
        finally:
            await client.close()

    asyncio.run(load())
    assert len(samples) == 20
    assert {sample.error for sample in samples} == {None}
    assert {sum(tokens.number for tokens in sample.tokens) for sample in samples} == {6}
    assert all(sample.arrived <= sample.sent < sample.tokens[0].time <= sample.ended for sample in samples)


def test_the_worker_starts_the_server_for_both_protocols(checkpoint: Path, tmp_path: Path) -> None:
    words = command(checkpoint, port="{port}", grpc_port="{grpc_port}")
    cases = [
        {"name": "grpc", "protocol": "fmaas", "request": FMAAS, "stream": True},
        {"name": "http", "protocol": "chat", "request": CHAT, "stream": True},
    ]
    (tmp_path / "cases.json").write_text(json.dumps({"cases": cases}))
    (tmp_path / "settings.json").write_text(
        json.dumps({"server": {"command": list(map(str, words)), "ready": {"path": "/health", "timeout": 60}}})
    )
    worker = subprocess.run(
        [sys.executable, "-m", "toolbox.features.inference.client", "settings.json"],
        cwd=tmp_path,
        env=os.environ | environment(),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert worker.returncode == 0, worker.stdout + worker.stderr
    answers = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    assert [(answer["case"], answer["stream"]) for answer in answers] == [
        ("grpc", False),
        ("grpc", True),
        ("http", False),
        ("http", True),
    ]
    assert json.loads((tmp_path / "worker.json").read_text())["server"]["exit_status"] == 0
