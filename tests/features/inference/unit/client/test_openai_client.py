"""The client of OpenAI's protocol makes an answer or a fault of whatever a server sends."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.features.inference.servers.inference import asking, http_server
from tests.features.inference.servers.inference.asking import AFTER_CHUNKS, LIMITS, SOON, ask_openai
from tests.features.inference.servers.inference.http_server import (
    HttpRequest,
    ResetConnectionError,
    Script,
    answering,
    choice,
    event,
    response,
    serving,
    stream_head,
)
from tests.servers import certificates
from toolbox.features.inference.client.answer_format import Answer, Case, FaultError, Limits, SettingsError
from toolbox.features.inference.client.openai_client import OpenAiClient
from toolbox.ground.kit.server_answers import ToolCall

STREAM = {"prompt": "a", "stream": True}
WHOLE = {"prompt": "a"}
DONE = event("[DONE]")


@pytest.fixture(autouse=True, params=[False, True], ids=["httpx", "load"])
def _transport(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send the requests by both transports: that of httpx, and that of loads."""
    monkeypatch.setattr(asking, "OpenAiClient", partial(OpenAiClient, keeps_connections=request.param))


def ask(script: Script, request: dict[str, Any], limits: Limits = LIMITS, **options: Any) -> Answer:
    with serving(script) as server:
        (answer,) = ask_openai(server.url, request, limits=limits, **options)
    return answer


def fault_of(script: Script, request: dict[str, Any], limits: Limits = LIMITS) -> str:
    answer = ask(script, request, limits)
    assert answer.fault
    assert answer.error is None
    return answer.fault


def test_a_whole_answer_is_kept_and_normalised() -> None:
    body = choice("b", "length", extra={"kept": True})
    answer = ask(answering(response(body)), WHOLE)
    assert answer.fault is None
    assert answer.response == body
    assert [generation.text for generation in answer.generations] == ["b"]
    assert answer.generations[0].stop_reason == "MAX_TOKENS"


def test_tokens_are_counted_where_the_server_does_not() -> None:
    logprobs = {"tokens": ["b", "c"], "token_logprobs": [-1, -2]}
    answer = ask(answering(response(choice("bc", "length", logprobs=logprobs))), WHOLE)
    assert answer.generations[0].generated_token_count == 2


def test_calls_of_tools_are_gathered_from_a_stream() -> None:
    parts = [
        {"index": 0, "function": {"name": "get_weather", "arguments": "{"}},
        {"index": 0, "function": {"arguments": "}"}},
    ]
    chunks = [{"choices": [{"delta": {"content": None, "tool_calls": [part]}}]} for part in parts]
    end = {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}
    (generation,) = ask(answering(stream_head(), *map(event, [*chunks, end]), DONE), STREAM).generations
    assert generation.tool_calls == (ToolCall(index=0, name="get_weather", arguments="{}"),)


def test_the_chunks_of_a_stream_add_up_to_a_generation() -> None:
    chunks = [choice("b"), choice("c"), choice("", "length"), {"choices": [], "usage": {"completion_tokens": 2}}]
    answer = ask(answering(stream_head(), *map(event, chunks), DONE), STREAM)
    assert answer.fault is None
    assert answer.response is None
    (generation,) = answer.generations
    assert (generation.text, generation.stop_reason, generation.generated_token_count) == ("bc", "MAX_TOKENS", 2)
    assert [chunk.raw for chunk in answer.chunks] == chunks
    times = [chunk.seconds for chunk in answer.chunks]
    assert times == sorted(times)


def test_each_choice_of_a_stream_is_a_generation() -> None:
    chunks = [choice("b", index=1), choice("a"), choice("", "length"), choice("c", "stop", index=1)]
    answer = ask(answering(stream_head(), *map(event, chunks), DONE), STREAM)
    assert [generation.text for generation in answer.generations] == ["a", "bc"]


def test_chunks_beyond_the_limit_are_counted_and_not_kept() -> None:
    answer = ask(answering(stream_head(), event(choice("b")) * 9, event(choice("", "length")), DONE), STREAM)
    assert (len(answer.chunks), answer.chunks_left_out) == (5, 5)
    assert answer.generations[0].text == "b" * 9


def test_a_stream_without_done_is_whole_if_its_choices_have_ended() -> None:
    assert ask(answering(stream_head(), event(choice("b", "stop"))), STREAM).fault is None


@pytest.mark.parametrize("end", [b"data: [DONE]", b"data: [DONE]\n", b": a comment", b"\n"])
def test_the_end_of_a_stream_needs_no_empty_line(end: bytes) -> None:
    assert ask(answering(stream_head(), event(choice("b", "stop")), end), STREAM).fault is None


def test_an_error_beside_a_text_is_an_error() -> None:
    answer = ask(answering(response({**choice("b", "stop"), "error": {"message": "broken"}})), WHOLE)
    assert answer.error is not None
    assert answer.error.message == "broken"
    assert not answer.generations


def test_events_after_the_end_of_a_stream_are_ignored() -> None:
    answer = ask(answering(stream_head(), event(choice("b", "stop")), DONE, event(choice("c")), event("{")), STREAM)
    assert answer.fault is None
    assert answer.generations[0].text == "b"


def test_a_kept_connection_is_used_for_the_next_stream() -> None:
    chunks = event(choice("b", "stop")) + DONE
    end = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in (chunks, b""))
    head = b"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

    async def send(url: str, count: int) -> None:
        client = OpenAiClient(url, LIMITS, model="m", keeps_connections=True)
        try:
            for _ in range(count):
                answer = Answer(case="a", stream=True)
                await client.send(Case(name="a", protocol="completions", request=STREAM), answer)
        finally:
            await client.close()

    with serving(answering(head + end), keeps_connections=True) as server:
        asyncio.run(send(server.url, 3))
    assert len(server.requests) == 3
    assert server.connections == 1


def test_an_error_of_the_server_is_not_a_fault() -> None:
    answer = ask(answering(response({"error": {"message": "too long", "code": "long"}}, status=400)), WHOLE)
    assert answer.fault is None
    assert answer.error
    assert (answer.error.code, answer.error.status, answer.error.message) == ("long", 400, "too long")


def test_a_refused_stream_is_an_error_of_the_server() -> None:
    answer = ask(answering(response({"error": "no", "error_type": "validation"}, status=422)), STREAM)
    assert answer.error
    assert answer.error.code == "validation"


def test_an_error_within_a_stream_ends_it() -> None:
    answer = ask(
        answering(stream_head(), event(choice("b")), event({"error": {"message": "gone", "code": 500}})), STREAM
    )
    assert answer.fault is None
    assert answer.error
    assert (answer.error.status, answer.error.message) == (500, "gone")
    assert len(answer.chunks) == 1


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (b"", "is not HTTP, or is not complete: .*erver disconnected"),
        (b"HTTP/1.1 200", "is not HTTP, or is not complete"),
        (b"\x00\xff\xfe" * 100 + b"\r\n\r\n", "is not HTTP"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "is not HTTP"),
        (HEAD + b"Content-Length: 100\r\n\r\n{}", "is not HTTP, or is not complete: .*received 2 bytes, expected 100"),
        (HEAD + b"Content-Length: -1\r\n\r\n{}", "is not HTTP"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{", "is not HTTP, or is not complete"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", "is not HTTP"),
        (HEAD + b"X: " + b"x" * 200_000, "is not HTTP"),
        (HEAD + b"X: y\r\n" * 50_000, "is not HTTP"),
        (response(b"x" * 100_001), "larger than 100000 bytes"),
        (HEAD + b"\r\n" + b"x" * 200_000, "larger than 100000 bytes"),
        (response(b"<html></html>"), "not JSON: .*<html>"),
        (response(b"\xff\xfe"), "not UTF-8"),
        (response(b"[" * 99_999), "nested too deeply"),
        (response([]), "the body of the answer is not an object"),
        (response({}), "choices of the answer is not a list"),
        (response(choice(7)), r"choices\[0\].text of the answer is not a text"),  # type: ignore[arg-type]  # wrong
        (response(b"", status=204), "not JSON"),
        (response(b"", status=302, headers="Location: http://169.254.169.254/\r\n"), "redirects to 'http://169"),
        (response(b"", status=301, headers="Location: \x01\r\n"), "."),
        (response(gzip.compress(b"x"), headers="Content-Encoding: gzip\r\n"), r"compressed \('gzip'\)"),
    ],
)
def test_a_broken_answer_is_a_fault(sent: bytes, message: str) -> None:
    with serving(answering(sent)) as server:
        (answer,) = ask_openai(server.url, WHOLE)
    assert answer.fault
    assert re.search(message, answer.fault), answer.fault
    assert len(json.loads(answer.line())["fault"]) <= 1000


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        ([], "the stream ended without a generation"),
        ([DONE], "the stream ended without a generation"),
        ([event(choice("b", "stop")), event(choice("c"))[:-1]], "the stream ended within an event"),
        ([event(choice("b", "stop")), event(choice("c"))[:9]], "the stream ended within an event"),
        ([event(choice("b"))], "the stream ended without a stop reason; 1 chunk arrived"),
        ([event(choice("b")), DONE], "the stream ended without a stop reason; 1 chunk arrived"),
        ([event(choice("b", "stop"))[:-2]], "the stream ended within an event"),
        ([event("{")], "not JSON"),
        ([event("[]")], "an event of the answer is not an object"),
        ([event({})], "choices of the answer is not a list"),
        ([b"data: \xff\n\n"], "not UTF-8"),
        ([b"data: " + b"x" * 30_000], "an event is larger than 20000 bytes"),
        ([event(choice("b"))] * 5000, "the stream is larger than 100000 bytes"),
        ([b":\n"] * 100_000, "the stream is larger than 100000 bytes"),
    ],
)
def test_a_broken_stream_is_a_fault(pieces: list[bytes], message: str) -> None:
    assert message in fault_of(answering(stream_head(), b"".join(pieces)), STREAM)


def test_the_chunks_before_a_fault_are_kept() -> None:
    answer = ask(answering(stream_head(), event(choice("b"))), STREAM)
    assert answer.fault
    assert [chunk.part.text for chunk in answer.chunks] == ["b"]
    assert [generation.text for generation in answer.generations] == ["b"]


def test_an_answer_that_is_no_stream_is_a_fault() -> None:
    assert "has the type 'application/json'" in fault_of(answering(response(choice("b", "stop"))), STREAM)


def test_a_reset_connection_is_a_fault() -> None:
    def script(_: HttpRequest) -> Iterator[bytes]:
        yield stream_head() + event(choice("b"))
        raise ResetConnectionError

    assert fault_of(script, STREAM).startswith("the connection was lost: Connection reset by peer; 1 chunk arrived")


def test_a_server_that_does_not_listen_is_a_fault() -> None:
    with serving(answering()) as server:
        url = server.url
    (answer,) = ask_openai(url, {"prompt": "a", "model": "m"})
    assert answer.fault
    assert answer.fault == "no connection to the server: Connection refused"


@pytest.mark.parametrize(
    ("before", "limits", "message"),
    [
        ([], SOON, "the time limit of 0.3 s was exceeded"),
        ([b"HTTP/1.1 200 OK\r\n"], SOON, "the time limit of 0.3 s was exceeded"),
        (
            [stream_head(), event(choice("b"))],
            AFTER_CHUNKS,
            "the time limit of 3 s was exceeded; 1 chunk arrived, after ",
        ),
    ],
)
def test_a_server_that_falls_silent_is_a_fault(before: list[bytes], limits: Limits, message: str) -> None:
    stopping = threading.Event()

    def script(_: HttpRequest) -> Iterator[bytes]:
        yield from before
        stopping.wait()

    with serving(script) as server:
        (answer,) = ask_openai(server.url, STREAM, limits=limits)
        stopping.set()
    assert answer.fault
    assert answer.fault.startswith(message)


def test_bytes_that_arrive_slowly_do_not_extend_the_time() -> None:
    stopping = threading.Event()

    def script(_: HttpRequest) -> Iterator[bytes]:
        yield stream_head()
        while not stopping.wait(0.02):
            yield b":\n"

    try:
        assert fault_of(script, STREAM, SOON) == "the time limit of 0.3 s was exceeded"
    finally:
        stopping.set()


def test_an_endless_answer_ends_at_its_limit() -> None:
    def script(_: HttpRequest) -> Iterator[bytes]:
        yield HEAD + b"\r\n"
        while True:
            yield b"x" * 10_000

    assert "larger than 100000 bytes" in fault_of(script, WHOLE)


def test_endless_interim_responses_end_at_the_limit() -> None:
    def script(_: HttpRequest) -> Iterator[bytes]:
        while True:
            yield b"HTTP/1.1 103 Early Hints\r\n\r\n"

    assert fault_of(script, WHOLE, SOON)


def test_a_request_that_json_cannot_hold_is_not_sent() -> None:
    with serving(answering(response(choice()))) as server:
        (answer,) = ask_openai(server.url, {"prompt": "a", "model": "m", "temperature": float("nan")})
    assert answer.fault
    assert answer.fault.startswith("the request is invalid: ")
    assert server.requests == []


def test_a_request_without_a_model_names_the_first_model_of_the_server() -> None:
    with serving(answering(response(choice("b", "stop")))) as server:
        ask_openai(server.url, WHOLE)
    assert [request.path for request in server.requests] == ["/v1/models", "/v1/completions"]
    assert server.requests[1].body == {"prompt": "a", "model": "tiny"}


def test_a_stream_asks_for_the_usage_unless_the_case_decides() -> None:
    with serving(answering(stream_head(), event(choice("b", "stop")))) as server:
        ask_openai(server.url, {"prompt": "a", "model": "m", "stream": True})
        ask_openai(server.url, {"prompt": "a", "model": "m", "stream": True, "stream_options": None})
    assert [request.body["stream_options"] for request in server.requests] == [{"include_usage": True}, None]


def test_the_models_are_a_list() -> None:
    with serving(answering()) as server:
        (answer,) = ask_openai(server.url, protocol="models")
    assert answer.response == http_server.MODELS


def test_the_key_reaches_the_server_and_nothing_else() -> None:
    key = "sk-very-secret"
    with serving(answering(response({"error": "no"}, status=401))) as server:
        (answer,) = ask_openai(server.url, WHOLE, key=key)
    assert server.requests[0].headers["authorization"] == f"Bearer {key}"
    assert key not in answer.line()


def test_the_file_of_an_authority_is_trusted_instead_of_the_system(tmp_path: Path) -> None:
    certificate = certificates.make(tmp_path / "server.pem", "127.0.0.1")
    with serving(answering(response(choice("b", "stop"))), certificate=certificate) as server:
        (trusted,) = ask_openai(server.url, WHOLE, key="sk-1", ca_file=str(certificate))
        (other,) = ask_openai(server.url, WHOLE, key="sk-1")
    assert trusted.fault is None
    assert "certificate verify failed" in str(other.fault)
    assert {request.headers["authorization"] for request in server.requests} == {"Bearer sk-1"}
    assert len(server.requests) == 2  # those of the first client: the list of models, and the request


def test_proxies_and_netrc_of_the_machine_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    assert ask(answering(response(choice("b", "stop"))), WHOLE).fault is None


@pytest.mark.parametrize(
    "url", ["", "ftp://host", "http://", "http://user:pw@host", "http://host?key=x", "host:80", "http://h:x"]
)
def test_a_url_that_is_not_plain_is_refused(url: str) -> None:
    with pytest.raises(SettingsError) as caught:
        OpenAiClient(url, LIMITS)
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize("ending", ["", "/", "/v1", "/v1/"])
def test_the_url_may_end_with_the_version(ending: str) -> None:
    with serving(answering(response(choice("b", "stop")))) as server:
        ask_openai(server.url + ending, {"prompt": "a", "model": "m"})
    assert server.requests[0].path == "/v1/completions"


@pytest.mark.parametrize(("status", "is_ready"), [(200, True), (204, False), (404, False), (503, False)])
def test_a_server_is_ready_at_status_200(status: int, is_ready: bool) -> None:
    async def check(url: str) -> None:
        client = OpenAiClient(url, LIMITS)
        try:
            await client.check_ready("/health")
        finally:
            await client.close()

    with serving(answering(response({}, status=status))) as server:
        if is_ready:
            asyncio.run(check(server.url))
        else:
            with pytest.raises(FaultError, match=f"HTTP status {status}"):
                asyncio.run(check(server.url))
    assert json.dumps([request.path for request in server.requests]) == '["/health"]'


@pytest.mark.parametrize("request_body", [WHOLE, STREAM])
@pytest.mark.parametrize(
    ("status", "header", "seconds"),
    [
        (429, "Retry-After: 2\r\n", 2.0),
        (503, "retry-after:  1.5 \r\n", 1.5),
        (503, "Retry-After: Thu, 01 Jan 1970 00:00:00 GMT\r\n", 0.0),
        (503, "Retry-After: Thu, 01 Jan 99999 00:00:00 GMT\r\n", None),
        (503, "Retry-After: -1\r\n", None),
        (503, "Retry-After: \r\n", None),
        (503, f"Retry-After: {'9' * 400}\r\n", None),
        (503, "Retry-After: soon\r\n", None),
        (429, "", None),
        (500, "Retry-After: 2\r\n", None),
        (400, "Retry-After: 2\r\n", None),
    ],
)
def test_a_refusal_says_when_the_request_may_be_sent_again(
    status: int, header: str, seconds: float | None, request_body: dict[str, Any]
) -> None:
    answer = ask(answering(response({"error": "busy"}, status=status, headers=header)), request_body)
    assert answer.error
    assert (answer.error.status, answer.error.retry_after) == (status, seconds)


DETAIL = {"detail": [{"loc": ["body", "n"], "msg": "too large"}]}
OLD_VLLM = {"object": "error", "message": "too long", "type": "BadRequestError", "param": None, "code": 400}


@pytest.mark.parametrize(
    ("sent", "code", "status", "message"),
    [
        (event({"error": "`n` must be positive"}), "ERROR", None, "`n` must be positive"),  # transformers
        (b'error: {"code": 500, "message": "no slot", "type": "server_error"}\n\n', "server_error", 500, "no slot"),
        (b"error: no slot\n\n", "ERROR", None, "no slot"),
        (b'event: error\ndata: {"message": "gone", "code": 503}\n\n', "HTTP 503", 503, "gone"),
        (b"event: error\ndata: gone\n\n", "ERROR", None, "gone"),
        (event({"detail": "Not Found"}), "ERROR", None, "Not Found"),
        (event(DETAIL), "ERROR", None, repr(str(DETAIL["detail"]))),
        (event(OLD_VLLM), "BadRequestError", 400, "too long"),
    ],
)
@pytest.mark.parametrize("before", [b"", event(choice("b"))])
def test_an_error_inside_a_stream_is_kept(
    before: bytes, sent: bytes, code: str, status: int | None, message: str
) -> None:
    answer = ask(answering(stream_head(), before, sent), STREAM)
    assert answer.fault is None
    assert answer.error
    assert (answer.error.code, answer.error.status, answer.error.message) == (code, status, message)


@pytest.mark.parametrize("body", [{"error": "no"}, {"detail": "no"}, {"object": "error", "message": "no"}])
@pytest.mark.parametrize("request_body", [WHOLE, STREAM])
def test_an_error_with_the_status_200_is_an_error_also_without_a_stream(
    body: dict[str, Any], request_body: dict[str, Any]
) -> None:
    answer = ask(answering(response(body)), request_body)
    assert answer.error
    assert answer.error.message == "no"


@pytest.mark.parametrize(
    ("pieces", "evidence"),
    [
        ([b"Internal Server Error\n\n"], "the server sent 'Internal Server Error'"),
        ([b'{"error": "no slot"}\n'], 'the server sent \'{"error": "no slot"}\''),
        ([event({"message": "no slot"})], 'the server sent \'{"message": "no slot"}\''),
        ([event(choice("b", "stop")), b'data: {"error": "no slot"'], 'within an event: \'{"error": "no slot"\''),
    ],
)
def test_the_fault_of_a_stream_quotes_what_the_server_sent(pieces: list[bytes], evidence: str) -> None:
    assert evidence in fault_of(answering(stream_head(), *pieces), STREAM)


def test_an_answer_that_is_no_stream_is_quoted() -> None:
    assert "has the type 'text/html': '<h1>No</h1>'" in fault_of(
        answering(response(b"<h1>No</h1>", kind="text/html")), STREAM
    )


def test_an_answer_with_a_detail_is_no_error() -> None:
    assert ask(answering(response({**choice("b", "stop"), "detail": "x", "object": "error"})), WHOLE).error is None


@pytest.mark.parametrize(
    ("sent", "name"),
    [
        ([stream_head(), event(choice("b", "stop"))], "delta"),
        ([response(choice("b", "stop"))], "message"),
    ],
)
def test_a_chat_without_a_message_names_its_field(sent: list[bytes], name: str) -> None:
    request = {"messages": [], "model": "m", "stream": name == "delta"}
    with serving(answering(*sent)) as server:
        (answer,) = ask_openai(server.url, request, protocol="chat")
    assert answer.fault
    assert answer.fault.startswith(f"choices[0] of the answer to a chat has no field `{name}`; the server sent ")
