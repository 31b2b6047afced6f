"""
Any request gets an answer or an error that says what is wrong with it, and leaves the server as it was.

FUZZ_EXAMPLES=20000 in the environment makes each test with random requests try this number of them.
"""

from __future__ import annotations

import json
import os
import random
import socket
from collections.abc import Iterator
from typing import Any

import grpc
import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.features.inference.functional.reference_server.clients import Stub, post
from tests.features.inference.servers.reference_server import ReferenceServer
from toolbox.features.inference.client.fmaas import generation_pb2 as fmaas

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
METHODS = ["Generate", "GenerateStream", "Tokenize", "ModelInfo"]
fuzzed = settings(
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", "100")),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture(scope="module", autouse=True)
def _unharmed(server: ReferenceServer) -> Iterator[None]:
    """After all tests, check that the server still answers, and has neither threads nor connections left over."""
    process = psutil.Process(server.process.pid)
    threads, files, memory = process.num_threads(), process.num_fds(), process.memory_info().rss
    yield
    assert post(server, COMPLETIONS, json.dumps({"model": "tiny", "prompt": "a"}).encode())[0] == 200
    # Some threads of an executor, and some memory, are kept. The channels of other tests are connections.
    assert process.num_threads() < threads + 10
    assert process.num_fds() < files + 20
    assert process.memory_info().rss < memory + 200 * 2**20
    log = server.errors.read_text()
    assert "Traceback" not in log, log[log.index("Traceback") :][:4000]


def raw_call(channel: grpc.Channel, method: str) -> Any:
    """Return a method of the service that takes and returns bytes."""
    connect = channel.unary_stream if method == "GenerateStream" else channel.unary_unary
    return connect(f"/fmaas.GenerationService/{method}")


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"null", 400),
        (b"[]", 400),
        (b"\xff", 400),
        (b'{"model": "\\ud800"}', 400),
        (b'{"model": NaN}', 400),
        (b"[" * 100_000, 400),
        (b'{"model": 1e999999}', 400),
        (b'{"model": ' + b"9" * 10_000 + b"}", 400),
        (b'"' + b"x" * (1 << 20) + b'"', 413),
        (b'{"model": "huge", "prompt": "a", "messages": [{"role": "user", "content": "a"}]}', 400),
    ],
)
def test_nonsense_is_refused(server: ReferenceServer, path: str, body: bytes, status: int) -> None:
    found, content = post(server, path, body)
    assert found == status
    assert set(content["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", COMPLETIONS, 405), ("DELETE", "/v1/models", 405), ("GET", "/", 404), ("POST", "/v1/embeddings", 404)],
)
def test_other_paths_and_methods_are_refused(server: ReferenceServer, method: str, path: str, status: int) -> None:
    found, content = post(server, path, b"", method)
    assert (found, content["error"]["type"]) == (status, "invalid_request_error")


def test_the_server_is_healthy(server: ReferenceServer) -> None:
    assert post(server, "/health", b"", "GET") == (200, {"status": "ok"})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
other_fields = ["stream_options", "top_k", "min_tokens", "repetition_penalty", "truncate_prompt_tokens", "echo"]
plausible: dict[str, st.SearchStrategy[Any]] = {
    "prompt": st.text("abc", max_size=40) | st.lists(st.integers(0, 40), max_size=3),
    "messages": st.just([{"role": "user", "content": "abc"}]),
    "max_tokens": st.integers(-1, 40),
    "temperature": st.floats(0, 2),
    "top_p": st.floats(0, 1),
    "n": st.integers(0, 4),
    "stream": st.booleans(),
    "stop": st.text("abc", max_size=2) | st.lists(st.text("abc", max_size=2), max_size=3),
    "seed": st.integers(),
    "logprobs": st.booleans() | st.integers(0, 6),
}


@fuzzed
@given(
    path=st.sampled_from([COMPLETIONS, CHAT]),
    fields=st.lists(st.sampled_from([*plausible, *other_fields]), unique=True),
    data=st.data(),
)
def test_any_json_gets_an_answer_or_an_error(
    server: ReferenceServer, path: str, fields: list[str], data: st.DataObject
) -> None:
    body: dict[str, Any] = (
        {"model": "tiny", "prompt": "a"} if path == COMPLETIONS else {"model": "tiny", "messages": []}
    )
    body |= {name: data.draw(plausible.get(name, json_values) | json_values) for name in fields}
    status, content = post(server, path, json.dumps(body).encode())
    if status == 200:
        assert content.endswith(b"data: [DONE]\n\n") if body.get("stream") else content["choices"]
    else:
        assert status in (400, 404)
        assert content["error"]["message"]


@fuzzed
@given(content=st.binary(max_size=60), method=st.sampled_from(METHODS))
def test_any_bytes_get_an_answer_or_an_error(server: ReferenceServer, content: bytes, method: str) -> None:
    with grpc.insecure_channel(server.grpc_address) as channel:
        try:
            list(raw_call(channel, method)(content, timeout=30))
        except grpc.RpcError as error:
            assert error.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND)  # noqa: PT017


def mutated(content: bytes, chance: random.Random) -> bytes:
    """Return a content with some bytes changed, added or removed."""
    for _ in range(chance.randint(1, 4)):
        place = chance.randint(0, len(content))
        added = chance.randbytes(chance.choice([0, 1, 1, 8]))
        content = content[:place] + added + content[place + chance.choice([0, 1, 1, 20]) :]
    return content


def sent(port: int, content: bytes) -> bytes:
    """Send some bytes, and return what the server sends until it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        received = b""
        try:
            connection.sendall(content)
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(65536):
                received += part
        except ConnectionError:  # the server may close it before it has read all
            pass
        return received


BODY = json.dumps({"model": "tiny", "prompt": "abc", "max_tokens": 3, "stream": True}).encode()
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
HTTP = [
    HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY,
    HEAD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY),
    b"GET /health HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n" * 3,
]
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"


@fuzzed
@given(request=st.sampled_from(HTTP), chance=st.randoms(use_true_random=False))
def test_any_bytes_on_the_http_port_get_an_answer_or_an_end(
    server: ReferenceServer, request: bytes, chance: random.Random
) -> None:
    received = sent(server.http_port, mutated(request, chance))
    assert received == b"" or received.startswith(b"HTTP/1.1 ")
    assert not received.startswith(b"HTTP/1.1 5")


@fuzzed
@given(begin=st.sampled_from([b"", HTTP2[:10], HTTP2]), content=st.binary(max_size=100))
def test_any_bytes_on_the_grpc_port_end_only_their_connection(
    server: ReferenceServer, stub: Stub, begin: bytes, content: bytes
) -> None:
    sent(server.grpc_port, begin + content)
    assert stub.ModelInfo(fmaas.ModelInfoRequest(), timeout=30).max_sequence_length == 32


def test_calls_without_a_message_do_not_stop_other_clients(server: ReferenceServer, stub: Stub) -> None:
    headers = [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", b"/fmaas.GenerationService/Generate"),
        (b":authority", b"x"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
    ]
    # HPACK: each name and each value with its length, without an index.
    block = b"".join(b"\0%c%b%c%b" % (len(name), name, len(value), value) for name, value in headers)
    begin = len(block).to_bytes(3, "big") + b"\1\4"  # the frame HEADERS, which ends the headers but not the stream
    frames = b"".join(begin + number.to_bytes(4, "big") + block for number in range(1, 8000, 2))
    with socket.create_connection(("127.0.0.1", server.grpc_port), timeout=30) as connection:
        connection.sendall(HTTP2 + frames + b"\0\0\x08\6\0\0\0\0\0" + b"the ping")
        received = b""
        while b"the ping" not in received:  # the server has read all frames
            received += connection.recv(65536)
        batch = fmaas.BatchedGenerationRequest(requests=[fmaas.GenerationRequest(text="a")])
        assert stub.Generate(batch, timeout=30).responses


MESSAGE = fmaas.SingleGenerationRequest(
    request=fmaas.GenerationRequest(text="abc"),
    params=fmaas.Parameters(
        method=fmaas.SAMPLE,
        sampling=fmaas.SamplingParameters(temperature=0.7, seed=3),
        stopping=fmaas.StoppingCriteria(max_new_tokens=5, stop_sequences=["ab", "c"]),
        response=fmaas.ResponseOptions(generated_tokens=True),
    ),
).SerializeToString()


@fuzzed
@given(method=st.sampled_from(METHODS), chance=st.randoms(use_true_random=False))
def test_a_damaged_message_gets_an_answer_or_an_error(
    server: ReferenceServer, method: str, chance: random.Random
) -> None:
    with grpc.insecure_channel(server.grpc_address) as channel:
        try:
            list(raw_call(channel, method)(mutated(MESSAGE, chance), timeout=30))
        except grpc.RpcError as error:
            assert error.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND)  # noqa: PT017


numbers = st.sampled_from([0, 1, 2, 5, 31, 2**31, 2**32 - 1])
floats = st.floats(width=32) | st.sampled_from([0.0, 0.5, 1.0, 2.0])
parameters = st.builds(
    fmaas.Parameters,
    method=st.integers(0, 2),
    sampling=st.builds(
        fmaas.SamplingParameters, temperature=floats, top_k=numbers, top_p=floats, typical_p=floats, seed=numbers
    ),
    stopping=st.builds(
        fmaas.StoppingCriteria,
        max_new_tokens=numbers,
        min_new_tokens=numbers,
        time_limit_millis=numbers,
        stop_sequences=st.lists(st.text("abc", max_size=3), max_size=7),
        include_stop_sequence=st.booleans(),
    ),
    response=st.builds(
        fmaas.ResponseOptions,
        generated_tokens=st.booleans(),
        input_tokens=st.booleans(),
        token_logprobs=st.booleans(),
        token_ranks=st.booleans(),
        top_n_tokens=numbers,
    ),
    decoding=st.builds(fmaas.DecodingParameters, repetition_penalty=floats),
    truncate_input_tokens=numbers,
)


@fuzzed
@given(texts=st.lists(st.text("abc", max_size=40), max_size=3), parameters=parameters)
def test_any_parameters_get_an_answer_or_an_error(stub: Stub, texts: list[str], parameters: fmaas.Parameters) -> None:
    requests = [fmaas.GenerationRequest(text=text) for text in texts]
    try:
        found = stub.Generate(fmaas.BatchedGenerationRequest(requests=requests, params=parameters), timeout=30)
    except grpc.RpcError as error:
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT  # noqa: PT017
    else:
        assert len(found.responses) == len(texts)


def test_an_invalid_text_is_refused(server: ReferenceServer) -> None:
    with grpc.insecure_channel(server.grpc_address) as channel:
        message = fmaas.ModelInfoRequest(model_id="x").SerializeToString().replace(b"x", b"\xff")
        with pytest.raises(grpc.RpcError, match="the message cannot be decoded") as refused:
            raw_call(channel, "ModelInfo")(message)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_long_names_are_abbreviated_in_errors(server: ReferenceServer, stub: Stub) -> None:
    with pytest.raises(grpc.RpcError, match=r"and not 'e{100}'\.\.\.") as refused:
        stub.ModelInfo(fmaas.ModelInfoRequest(model_id="e" * 100_000))
    # An error of more than 16 kB would be reported as RESOURCE_EXHAUSTED.
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
    with pytest.raises(grpc.RpcError, match=r"prefix_id '(\\n){100}'\.\.\. is unknown"):
        stub.Generate(fmaas.BatchedGenerationRequest(prefix_id="\n" * 100_000))
    status, content = post(server, COMPLETIONS, json.dumps({"model": "e" * 100_000, "prompt": "a"}).encode())
    assert (status, content["error"]["message"][-10:]) == (404, "eeeeee'...")


def test_an_unknown_method_is_refused(server: ReferenceServer) -> None:
    with grpc.insecure_channel(server.grpc_address) as channel, pytest.raises(grpc.RpcError) as refused:
        raw_call(channel, "Nothing")(b"")
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_more_requests_than_the_server_accepts_are_refused(server: ReferenceServer, stub: Stub) -> None:
    batch = fmaas.BatchedGenerationRequest(requests=[fmaas.GenerationRequest(text="a")] * 2000)
    with pytest.raises(grpc.RpcError) as refused:
        stub.Generate(batch)
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    body = {"model": "tiny", "prompt": ["a"] * 2000}
    status, content = post(server, COMPLETIONS, json.dumps(body).encode())
    assert (status, content["error"]["code"]) == (429, "overloaded")
    status, content = post(server, COMPLETIONS, json.dumps(body | {"stream": True}).encode())
    assert status == 429


def test_a_vast_number_of_requests_is_refused_at_once(server: ReferenceServer, stub: Stub) -> None:
    body = {"model": "tiny", "prompt": ["a"] * 200_000, "n": 128}
    assert post(server, COMPLETIONS, json.dumps(body).encode())[0] == 429
    batch = fmaas.BatchedGenerationRequest(requests=[fmaas.GenerationRequest(text="a")] * 200_000)
    with pytest.raises(grpc.RpcError) as refused:
        stub.Generate(batch, timeout=10)
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    with pytest.raises(grpc.RpcError, match="larger than max") as refused:
        stub.Tokenize(fmaas.BatchedTokenizeRequest(requests=[fmaas.TokenizeRequest(text="a" * (1 << 20))]))
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
