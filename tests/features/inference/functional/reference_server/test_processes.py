"""The server ends with its shards, its shards with the server, and says why."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import openai
import psutil
import pytest

from tests.features.inference.functional.reference_server.clients import Stub
from tests.features.inference.servers.reference_server import WORKLOADS, ReferenceServer, command, environment, serving
from toolbox.features.inference.client.fmaas import generation_pb2 as fmaas

LONG = {"model": "tiny", "prompt": "a", "max_tokens": 90_000}


def shard_of(server: ReferenceServer) -> psutil.Process:
    (shard,) = psutil.Process(server.process.pid).children()
    return shard


def test_two_shards_generate_what_one_generates(checkpoint: Path, client: openai.OpenAI) -> None:
    options = {"model": "tiny", "prompt": ["to be", "or not", "a"], "max_tokens": 12, "temperature": 0, "logprobs": 2}
    one = client.completions.create(**options)  # type: ignore[call-overload]
    with serving(checkpoint, num_shard=2) as sharded, openai.OpenAI(base_url=sharded.url, api_key="none") as other:
        shard = shard_of(sharded)
        two = other.completions.create(**options)  # type: ignore[call-overload]
        sharded.process.terminate()
        assert sharded.process.wait(30) == 0
    assert not shard.is_running()
    for first, second in zip(one.choices, two.choices, strict=True):
        assert first.text == second.text
        assert second.logprobs.token_logprobs == pytest.approx(first.logprobs.token_logprobs, abs=1e-4)


@pytest.mark.parametrize("busy", [True, False])
def test_a_dead_shard_ends_the_server_with_a_reason(long_checkpoint: Path, busy: bool) -> None:
    with serving(long_checkpoint, num_shard=2) as server:
        shard = shard_of(server)
        with openai.OpenAI(base_url=server.url, api_key="none", max_retries=0) as client:
            if busy:
                stream = client.completions.create(stream=True, **LONG)  # type: ignore[call-overload]
                next(stream)
            shard.kill()
            if busy:
                with pytest.raises(openai.APIError, match=r"shard 1 \(process \d+\) ended with exit status -9"):
                    list(stream)
        assert server.process.wait(30) == 1
        assert f"shard 1 (process {shard.pid}) ended with exit status -9" in server.errors.read_text()


def test_a_killed_server_leaves_no_shard(checkpoint: Path) -> None:
    with serving(checkpoint, num_shard=2) as server:
        shard = shard_of(server)
        server.process.kill()
        server.process.wait(30)
        psutil.wait_procs([shard], timeout=30)
        assert not shard.is_running()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_busy_server_after_some_seconds_of_grace(long_checkpoint: Path, number: int) -> None:
    request = fmaas.GenerationRequest(text="a")
    parameters = fmaas.Parameters(stopping=fmaas.StoppingCriteria(max_new_tokens=90_000))
    with (
        serving(long_checkpoint) as server,
        openai.OpenAI(base_url=server.url, api_key="none", max_retries=0) as client,
        grpc.insecure_channel(server.grpc_address) as channel,
        ThreadPoolExecutor() as threads,
    ):
        call = Stub(channel).GenerateStream(fmaas.SingleGenerationRequest(request=request, params=parameters))
        stream = client.completions.create(stream=True, **LONG)  # type: ignore[call-overload]
        whole = threads.submit(lambda: client.completions.create(**LONG))  # type: ignore[call-overload]
        next(call)
        next(stream)
        server.process.send_signal(number)
        with pytest.raises(openai.APIError, match="the server is stopping"):
            list(stream)
        with pytest.raises(openai.InternalServerError, match="the server is stopping") as refused:
            whole.result()
        assert refused.value.status_code == 503
        with pytest.raises(grpc.RpcError, match="the server is stopping") as ended:
            list(call)
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
        assert server.process.wait(30) == 0
        assert server.errors.read_text() == ""


def test_a_request_that_runs_when_a_signal_comes_is_finished(long_checkpoint: Path) -> None:
    with (
        serving(long_checkpoint) as server,
        openai.OpenAI(base_url=server.url, api_key="none", max_retries=0) as client,
    ):
        stream = client.completions.create(stream=True, **LONG | {"max_tokens": 200})  # type: ignore[call-overload]
        next(stream)
        server.process.terminate()
        assert [chunk.choices[0].finish_reason for chunk in stream][-1] == "length"
        assert server.process.wait(30) == 0


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"num_shard": 3}, "4 heads cannot be divided among 3 shards"),
        ({"max_sequence_length": 33}, "--max_sequence_length must be between 2 and 32"),
        ({"max_sequence_length": 1}, "--max_sequence_length must be between 2 and 32"),
        ({"max_new_tokens": 32}, "--max_new_tokens must be below 32"),
        ({"dtype_str": "bfloat16"}, "invalid choice: 'bfloat16'"),
        ({"max_batch_size": 0}, "must be a positive number, not '0'"),
        ({"max_batch_size": 1025}, "--max_batch_size must be at most 1024"),
        ({"port": 65536}, "must be a number up to 65535, not '65536'"),
        ({"grpc_port": -1}, "must be a number up to 65535, not '-1'"),
        ({"host": "192.0.2.1"}, "Cannot assign requested address"),
    ],
)
def test_a_server_that_cannot_start_says_why(checkpoint: Path, options: dict[str, object], reason: str) -> None:
    assert reason in failed_start(checkpoint, **options)


@pytest.mark.parametrize("name", ["port", "grpc_port"])
def test_a_port_in_use_is_named(server: ReferenceServer, checkpoint: Path, name: str) -> None:
    port = server.http_port if name == "port" else server.grpc_port
    assert re.search("(?i)address already in use|cannot listen on port", failed_start(checkpoint, **{name: port}))


def test_a_missing_library_is_named(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "uvicorn.py").write_text("raise ModuleNotFoundError(name='uvicorn')")
    monkeypatch.setattr("tests.features.inference.servers.reference_server.WORKLOADS", [tmp_path, *WORKLOADS])
    assert failed_start(checkpoint) == f"reference_server: {sys.executable} has no module 'uvicorn'\n"


def test_a_missing_checkpoint_is_named() -> None:
    assert "cannot read the checkpoint missing.npz: " in failed_start(Path("missing.npz"))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (None, "cannot read the settings "),
        ("[]", "are not a JSON object"),
        ("null", "cannot read the checkpoint "),
        ('{"layers": 0}', "the settings are wrong: width is missing"),
    ],
)
def test_a_training_that_is_impossible_is_named(tmp_path: Path, settings: str | None, reason: str) -> None:
    if settings:
        (tmp_path / "settings.json").write_text(settings)
    assert reason in failed_start(tmp_path / "model.npz", training=tmp_path / "settings.json")


def failed_start(checkpoint: Path, **options: object) -> str:
    """Return what a server that cannot start writes to stderr."""
    ended = subprocess.run(
        command(checkpoint, **options),
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    return str(ended.stderr)
