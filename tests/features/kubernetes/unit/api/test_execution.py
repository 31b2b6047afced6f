"""A command in a pod gets its input and sends its output over a websocket."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from tests.features.kubernetes.fakes.api_server import Answer, ApiServer, Conversation, Request, Talk, failure
from toolbox.features.kubernetes.api import execution as executing
from toolbox.features.kubernetes.api.connection import ApiError, Cluster, Unavailable
from toolbox.features.kubernetes.api.execution import Execution

PATH = "/api/v1/namespaces/tests/pods/p/exec"
OUT, COMPLAINT = 1, 2
Script = Callable[[Conversation], None]


@pytest.fixture(params=["plain", "tls"])
def served(request: pytest.FixtureRequest, server: ApiServer) -> ApiServer:
    """Return the server, once without TLS and once with TLS."""
    if request.param == "tls":
        server.secure()
    return server


@pytest.fixture
def executed(server: ApiServer, cluster: Cluster) -> Callable[[Script], AbstractContextManager[Execution]]:
    """Return a function that executes a command, which a script replaces."""

    def execute(script: Script) -> AbstractContextManager[Execution]:
        server.answers("GET", PATH, Talk(script))
        return Execution.start(cluster, "p", "files", ["send", "a b"])

    return execute


Executed = Callable[[Script], AbstractContextManager[Execution]]


def test_arguments_with_spaces_stay_separate(server: ApiServer, executed: Executed) -> None:
    with executed(Conversation.end) as execution:
        assert execution.end(10) == ""
    query = server.requests[0].query
    assert (query["container"], query["command"]) == (["files"], ["send", "a b"])
    assert {name for name, value in query.items() if value == ["true"]} == {"stdin", "stdout", "stderr"}


def test_input_and_output_are_raw_bytes(executed: Executed) -> None:
    def echo(talk: Conversation) -> None:
        talk.send(OUT, talk.hear())
        talk.end()

    content = bytes(range(256)) * 1000
    with executed(echo) as execution:
        execution.send(content)
        assert execution.read(len(content), 10) == content


def test_output_in_pieces_is_read_by_its_length(executed: Executed) -> None:
    def speak(talk: Conversation) -> None:
        for piece in (b"ab", b"cde", b"f"):
            talk.send(OUT, piece)
        talk.end()

    with executed(speak) as execution:
        assert [execution.read(count, 10) for count in (1, 4, 9)] == [b"a", b"bcde", b"f"]


def test_a_silent_command_is_a_timeout(executed: Executed) -> None:
    with (
        executed(Conversation.hold) as execution,
        pytest.raises(Unavailable, match="a command in a pod printed nothing"),
    ):
        execution.read(1, 0.1)


@pytest.mark.usefixtures("served")
def test_an_incomplete_message_is_a_timeout(executed: Executed) -> None:
    def begin(talk: Conversation) -> None:
        talk.begin(4095, OUT, b"x" * 99)
        talk.hold()

    began = time.monotonic()
    with executed(begin) as execution, pytest.raises(Unavailable, match="a command in a pod printed nothing"):
        execution.read(1, 0.3)
    assert time.monotonic() - began < 10


def test_a_server_that_never_answers_is_a_timeout(
    served: ApiServer, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hold(_: Request) -> Answer:
        served.is_over.wait()
        return failure(503)

    monkeypatch.setattr(executing, "_SECONDS", 0.3)
    served.answers("GET", PATH, hold)
    with (
        pytest.raises(Unavailable, match=r"sut: the API server does not answer: .*timed out"),
        Execution.start(cluster, "p", "files", ["send"]),
    ):
        pass


@pytest.mark.usefixtures("served")
def test_a_command_that_does_not_end_is_a_timeout(executed: Executed) -> None:
    def complain(talk: Conversation) -> None:
        talk.send(COMPLAINT, b"a is left out\n")
        talk.hold()

    with executed(complain) as execution:
        assert execution.error_lines(0.3) == ["a is left out"]
        assert execution.end(0.3) == "the command does not end"


@pytest.mark.parametrize("served", ["tls"], indirect=True)
def test_a_server_with_an_untrusted_certificate_gets_no_request(served: ApiServer, cluster: Cluster) -> None:
    cluster.credentials.configuration.ssl_ca_cert = None
    with pytest.raises(Unavailable, match=r"self.signed certificate"), Execution.start(cluster, "p", "files", ["send"]):
        pass
    assert served.requests == []


def test_output_extends_the_timeout(executed: Executed) -> None:
    pause = threading.Event()

    def speak(talk: Conversation) -> None:
        for _ in range(5):
            talk.send(OUT, b"x")
            pause.wait(0.4)
        talk.end()

    with executed(speak) as execution:
        assert execution.read(5, 1.1) == b"xxxxx"


def test_the_error_is_that_of_the_command_or_of_the_node(executed: Executed) -> None:
    def complain(talk: Conversation) -> None:
        talk.send(COMPLAINT, b"no such folder\n")
        talk.end(status="Failure", message="exit code 1")

    with executed(complain) as execution:
        assert execution.end(10) == "no such folder"
    with executed(lambda talk: talk.end(status="Failure", message="exit code 1")) as execution:
        assert execution.end(10) == "exit code 1"


def test_a_lost_connection_is_not_the_end_of_the_command(executed: Executed) -> None:
    with pytest.raises(Unavailable, match="sut: "), executed(lambda _: None) as execution:
        execution.read(1, 10)


def test_standard_error_is_returned_as_lines(executed: Executed) -> None:
    def complain(talk: Conversation) -> None:
        talk.send(COMPLAINT, b"a is left out\nb is left out\n")
        talk.send(OUT, b"1")
        talk.end()

    with executed(complain) as execution:
        assert execution.read(1, 10) == b"1"
        assert execution.error_lines(10) == ["a is left out", "b is left out"]


def test_a_missing_container_is_an_api_error(server: ApiServer, cluster: Cluster) -> None:
    server.answers("GET", PATH, failure(404, 'pods "p" not found'))
    with pytest.raises(ApiError, match='sut: pods "p" not found'), Execution.start(cluster, "p", "files", ["send"]):
        pass


def test_the_error_has_the_message_of_the_server(server: ApiServer, cluster: Cluster) -> None:
    server.answers("GET", PATH, failure(503, "the node is away"))
    with (
        pytest.raises(Unavailable, match="the node is away") as caught,
        Execution.start(cluster, "p", "files", ["send"]),
    ):
        pass
    assert "-+-+-" not in str(caught.value)
