"""The client of fmaas makes an answer or a fault of whatever a server sends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import grpc
import pytest

from tests.features.inference.servers.inference import http_server
from tests.features.inference.servers.inference.asking import AFTER_CHUNKS, LIMITS, SOON, ask_fmaas
from tests.features.inference.servers.inference.grpc_server import Context, Script, answering, serving
from tests.servers import certificates
from tests.servers.tcp_proxy import Proxy
from toolbox.features.inference.client.answer_format import Answer, FaultError, Limits, SettingsError
from toolbox.features.inference.client.fmaas import generation_pb2 as fmaas
from toolbox.features.inference.client.fmaas_client import FmaasClient

REQUEST = {"requests": [{"text": "a"}]}
BATCH = {"requests": [{"text": "a"}, {"text": "b"}]}
BEGIN = fmaas.GenerationResponse(input_token_count=1).SerializeToString()
MIDDLE = fmaas.GenerationResponse(text="b", generated_token_count=1).SerializeToString()
END = fmaas.GenerationResponse(text="c", generated_token_count=2, stop_reason=fmaas.MAX_TOKENS).SerializeToString()


def whole(*texts: str) -> bytes:
    responses = [fmaas.GenerationResponse(text=text, stop_reason=fmaas.EOS_TOKEN) for text in texts]
    return fmaas.BatchedGenerationResponse(responses=responses).SerializeToString()


def ask_whole(script: Script, limits: Limits = LIMITS) -> Answer:
    with serving(script) as server:
        (answer,) = ask_fmaas(server.address, REQUEST, limits=limits)
    return answer


def ask_stream(script: Script, limits: Limits = LIMITS) -> Answer:
    with serving(answering(whole("bc")), script) as server:
        _, answer = ask_fmaas(server.address, REQUEST, stream=True, limits=limits)
    return answer


def test_each_response_of_a_batch_is_a_generation() -> None:
    with serving(answering(whole("x", "y"))) as server:
        (answer,) = ask_fmaas(server.address, BATCH)
    assert [generation.text for generation in answer.generations] == ["x", "y"]
    assert answer.response == {
        "responses": [{"text": "x", "stopReason": "EOS_TOKEN"}, {"text": "y", "stopReason": "EOS_TOKEN"}]
    }


def test_a_replayed_batch_has_a_stream_for_each_text() -> None:
    with serving(answering(whole("bc", "bc")), answering(BEGIN, MIDDLE, END)) as server:
        first, second = ask_fmaas(server.address, BATCH, stream=True)
    assert (first.stream, second.stream) == (False, True)
    assert [generation.text for generation in second.generations] == ["bc", "bc"]
    assert [generation.generated_token_count for generation in second.generations] == [2, 2]
    assert [chunk.index for chunk in second.chunks] == [0, 0, 0, 1, 1]
    assert second.chunks_left_out == 1
    assert second.response is None


def test_a_chunk_without_a_count_has_the_count_0() -> None:
    end = fmaas.GenerationResponse(text="c", stop_reason=fmaas.MAX_TOKENS).SerializeToString()
    answer = ask_stream(answering(BEGIN, MIDDLE, end))
    assert [chunk.part.generated_token_count for chunk in answer.chunks] == [0, 1, 0]


def test_a_request_without_texts_has_no_stream() -> None:
    with serving(answering(whole())) as server:
        (answer,) = ask_fmaas(server.address, {}, stream=True)
    assert answer.fault is None


def test_other_methods_have_a_response_and_no_generations() -> None:
    tokens = fmaas.BatchedTokenizeResponse(responses=[fmaas.TokenizeResponse(token_count=3)]).SerializeToString()
    with serving(answering(tokens)) as server:
        (answer,) = ask_fmaas(server.address, REQUEST, protocol="tokenize", stream=True)
    assert answer.response == {"responses": [{"tokenCount": 3}]}
    info = fmaas.ModelInfoResponse(max_sequence_length=9).SerializeToString()
    with serving(answering(info)) as server:
        (answer,) = ask_fmaas(server.address, {"modelId": "m"}, protocol="model_info")
    assert answer.response == {"maxSequenceLength": 9}


def aborting(code: grpc.StatusCode, message: str, *before: bytes) -> Script:
    def script(_: bytes, context: Context) -> Iterator[bytes]:
        yield from before
        context.abort(code, message)

    return script


def test_an_error_of_the_server_is_not_a_fault() -> None:
    answer = ask_whole(aborting(grpc.StatusCode.INVALID_ARGUMENT, "max_new_tokens must be <= 169"))
    assert answer.fault is None
    assert answer.error
    assert (answer.error.code, answer.error.message) == ("INVALID_ARGUMENT", "max_new_tokens must be <= 169")
    assert answer.error.status is None


@pytest.mark.parametrize("code", [grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INTERNAL])
def test_an_error_within_a_stream_keeps_the_chunks_before(code: grpc.StatusCode) -> None:
    answer = ask_stream(aborting(code, "full", BEGIN, MIDDLE))
    assert answer.error
    assert answer.error.code == code.name
    assert len(answer.chunks) == 2


def test_a_server_that_is_not_available_did_not_answer() -> None:
    answer = ask_whole(aborting(grpc.StatusCode.UNAVAILABLE, "later"))
    assert answer.fault == "UNAVAILABLE: later"


def test_bytes_that_are_no_message_are_a_fault() -> None:
    assert "not a message BatchedGenerationResponse" in str(ask_whole(answering(b"\xff\xff")).fault)
    assert "not a message GenerationResponse" in str(ask_stream(answering(BEGIN, b"\xff\xff")).fault)


def test_a_message_that_is_too_large_is_a_fault() -> None:
    answer = ask_whole(answering(whole("x" * 30_000)))
    assert "larger than max" in str(answer.fault)
    assert answer.error is None


def test_a_long_stream_is_a_fault() -> None:
    chunk = fmaas.GenerationResponse(text="x" * 10_000).SerializeToString()
    assert "the stream is larger than 100000 bytes; 9 chunks arrived" in str(ask_stream(answering(*[chunk] * 11)).fault)


def test_an_endless_stream_is_a_fault() -> None:
    def script(_: bytes, context: Context) -> Iterator[bytes]:
        while context.is_active():
            yield fmaas.GenerationResponse(text="b" * 1000).SerializeToString()

    assert "the stream is larger than 100000 bytes; " in str(ask_stream(script).fault)


@pytest.mark.parametrize("messages", [[BEGIN], [BEGIN, MIDDLE]])
def test_a_stream_that_ends_early_is_a_fault(messages: list[bytes]) -> None:
    answer = ask_stream(answering(*messages))
    assert str(answer.fault).startswith("the stream ended without a stop reason; ")
    assert len(answer.chunks) == len(messages)


def test_an_empty_stream_is_a_fault() -> None:
    assert ask_stream(answering()).fault == "the stream ended without a generation"


def silent(*before: bytes) -> tuple[Script, threading.Event]:
    stopping = threading.Event()

    def script(_: bytes, context: Context) -> Iterable[bytes]:
        context.add_callback(stopping.set)
        yield from before
        stopping.wait()
        yield b""

    return script, stopping


def test_a_server_that_falls_silent_is_a_fault() -> None:
    script, _ = silent()
    assert ask_whole(script, SOON).fault == "the time limit of 0.3 s was exceeded"


def test_a_call_that_is_given_up_is_cancelled_at_the_server() -> None:
    script, cancelled = silent(BEGIN, MIDDLE)
    fault = str(ask_stream(script, AFTER_CHUNKS).fault)
    assert fault.startswith("the time limit of 3 s was exceeded; 2 chunks arrived, the last one after ")
    assert cancelled.wait(10)


def test_a_connection_that_breaks_during_a_stream_is_a_fault() -> None:
    ended = threading.Event()

    def script(_: bytes, context: Context) -> Iterator[bytes]:
        context.add_callback(ended.set)
        yield BEGIN
        proxy.stop()
        ended.wait()

    with serving(answering(whole("bc")), script) as server:
        proxy = Proxy(lambda _: ("127.0.0.1", server.port))
        _, answer = ask_fmaas(f"127.0.0.1:{proxy.port}", REQUEST, stream=True)
    assert str(answer.fault).startswith("UNAVAILABLE: ")
    assert answer.error is None


def test_a_server_that_does_not_listen_is_a_fault() -> None:
    with serving() as server:
        address = server.address
    (answer,) = ask_fmaas(address, REQUEST)
    assert answer.fault == "UNAVAILABLE: no connection to the server: Connection refused"


@pytest.mark.parametrize("sent", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00" * 1000, b"x" * 100_000, b""])
def test_a_server_of_another_protocol_is_a_fault(sent: bytes) -> None:
    with http_server.serving_bytes(sent) as address:
        (answer,) = ask_fmaas(address, REQUEST, limits=Limits(seconds=3))
    assert answer.fault
    assert answer.error is None


def test_a_small_message_that_is_large_when_decompressed_is_a_fault() -> None:
    with serving(answering(whole("x" * 15_000_000)), compression=grpc.Compression.Gzip) as server:
        (answer,) = ask_fmaas(server.address, REQUEST)
    assert "larger than max" in str(answer.fault)
    assert answer.error is None


def test_a_compressed_message_is_an_answer() -> None:
    with serving(answering(whole("x" * 5000)), compression=grpc.Compression.Gzip) as server:
        (answer,) = ask_fmaas(server.address, REQUEST)
    assert answer.fault is None
    assert answer.generations[0].text == "x" * 5000


def test_a_request_with_an_unknown_field_is_not_sent() -> None:
    calls = []

    def script(content: bytes, _: Context) -> Iterable[bytes]:
        calls.append(content)
        return [whole("b")]

    with serving(script) as server:
        (answer,) = ask_fmaas(server.address, {"requests": [{"txt": "a"}]})
    assert 'the request is invalid: Failed to parse requests field: Message type "fmaas.Gener' in str(answer.fault)
    assert calls == []


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    return certificates.make(tmp_path / "server.pem", "127.0.0.1")


def asking_for_key(_: bytes, context: Context) -> Iterable[bytes]:
    """Answer with the header that contains the API key."""
    return [whole(str(dict(context.invocation_metadata()).get("authorization")))]


@pytest.mark.parametrize("key", [None, "sk-1"])
def test_a_server_with_tls_gets_the_key(certificate: Path, key: str | None) -> None:
    with serving(asking_for_key, answering(BEGIN, MIDDLE, END), certificate=certificate) as server:
        answers = ask_fmaas(f"grpcs://{server.address}", REQUEST, stream=True, key=key, ca_file=str(certificate))
    assert [answer.fault for answer in answers] == [None, None]
    assert answers[0].generations[0].text == (f"Bearer {key}" if key else "None")


def test_the_authorities_of_the_system_are_trusted(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with serving(answering(whole("b")), certificate=certificate) as server:
        (answer,) = ask_fmaas(f"grpcs://{server.address}", REQUEST)
    assert answer.fault is None


def test_a_server_whose_certificate_is_not_trusted_does_not_get_the_key(certificate: Path, tmp_path: Path) -> None:
    other = certificates.make(tmp_path / "other.pem", "127.0.0.1")
    with serving(asking_for_key, certificate=certificate) as server:
        (answer,) = ask_fmaas(f"grpcs://{server.address}", REQUEST, key="sk-1", ca_file=str(other))
    assert "CERTIFICATE_VERIFY_FAILED" in str(answer.fault)


def test_a_server_whose_certificate_has_another_name_is_not_trusted(tmp_path: Path) -> None:
    certificate = certificates.make(tmp_path / "server.pem", "127.0.0.2")
    with serving(asking_for_key, certificate=certificate) as server:
        (answer,) = ask_fmaas(f"grpcs://{server.address}", REQUEST, key="sk-1", ca_file=str(certificate))
    assert "127.0.0.1" in str(answer.fault)
    assert answer.generations == ()


def test_a_server_without_tls_gets_the_key_only_on_this_machine() -> None:
    with serving(asking_for_key) as server:
        (answer,) = ask_fmaas(server.address, REQUEST, key="sk-1")
    assert answer.generations[0].text == "Bearer sk-1"
    with pytest.raises(SettingsError, match=r"`grpc` must be grpcs://models\.example:80, because the API key"):
        ask_fmaas("models.example:80", REQUEST, key="sk-1")


def check_ready(address: str) -> None:
    async def check() -> None:
        client = FmaasClient(address, LIMITS)
        try:
            await client.check_ready(5)
        finally:
            await client.close()

    asyncio.run(check())


def test_a_server_is_ready_when_it_describes_its_model() -> None:
    with serving(answering(b"")) as server:
        check_ready(server.address)
    loading = aborting(grpc.StatusCode.FAILED_PRECONDITION, "loading")
    with serving(loading) as server, pytest.raises(FaultError, match="FAILED_PRECONDITION: loading"):
        check_ready(server.address)
