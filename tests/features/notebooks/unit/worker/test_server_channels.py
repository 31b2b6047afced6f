"""The connection to a kernel of a Jupyter server notices outputs that are missing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.features.notebooks.fakes.kernel_websocket import KernelWebsocket
from toolbox.features.notebooks.worker import server_channels
from toolbox.features.notebooks.worker.cell_outputs import DROPPED
from toolbox.features.notebooks.worker.server_channels import KernelSocket
from toolbox.features.notebooks.worker.server_rest import ServerAccess, ServerRest

SESSION = "client"
SECONDS = 60.0
WARNING = """\
IOPub {} rate exceeded.
The Jupyter server will temporarily stop sending output
to the client in order to avoid crashing it.
"""


@pytest.fixture
def server() -> Iterator[KernelWebsocket]:
    with KernelWebsocket() as found:
        yield found


@pytest.fixture
def socket(server: KernelWebsocket, monkeypatch: pytest.MonkeyPatch) -> Iterator[KernelSocket]:
    monkeypatch.setattr(server_channels, "_LARGEST_MESSAGE", 1 << 20)
    found = KernelSocket(ServerRest(ServerAccess(server.url, "s3cret")), "k", SESSION)
    server.wait_for_client()
    yield found
    found.close()


def stream(text: str, name: str = "stdout") -> dict[str, str]:
    return {"name": name, "text": text}


def take(socket: KernelSocket, channel: str = "iopub") -> dict[str, Any]:
    return socket.channels[channel].take(SECONDS)


def wait_for_end(socket: KernelSocket) -> None:
    deadline = time.monotonic() + SECONDS
    while not socket.lost:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(("rate", "limit"), [("data", "iopub_data_rate_limit"), ("message", "iopub_msg_rate_limit")])
def test_a_warning_of_the_server_says_that_outputs_are_missing(
    server: KernelWebsocket, socket: KernelSocket, rate: str, limit: str
) -> None:
    server.send("stream", stream(WARNING.format(rate), "stderr"), session=SESSION)
    assert f"dropped outputs that exceeded its limit `{limit}`" in take(socket)[DROPPED]


def test_a_notebook_may_print_the_warning_of_a_server(server: KernelWebsocket, socket: KernelSocket) -> None:
    server.send("stream", stream(WARNING.format("data"), "stderr"))
    assert DROPPED not in take(socket)


def test_a_kernel_that_uses_the_session_of_its_client_may_print(server: KernelWebsocket, socket: KernelSocket) -> None:
    server.send("stream", stream("text"), session=SESSION)
    assert DROPPED not in take(socket)


def test_outputs_that_nothing_reads_are_dropped_but_no_replies(
    server: KernelWebsocket, socket: KernelSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_channels, "_MAX_WAITING", 1000)
    for text in ("x" * 1500, "dropped", "dropped"):
        server.send("stream", stream(text))
    server.send("status", {"execution_state": "idle"})
    server.send("execute_reply", {"status": "ok"}, channel="shell")
    assert take(socket, "shell")["msg_type"] == "execute_reply"
    first, missing, status = take(socket), take(socket), take(socket)
    assert DROPPED not in first
    assert missing[DROPPED] == "the kernel sent outputs faster than the worker could read them"
    assert status["msg_type"] == "status"


def test_a_message_that_is_too_large_is_reported(server: KernelWebsocket, socket: KernelSocket) -> None:
    server.send("stream", stream("x" * (2 << 20)))
    assert take(socket)[DROPPED] == "a message of the kernel is larger than 1 MiB"
    server.wait_for_client()
    server.send("stream", stream("next"))
    assert take(socket)["content"]["text"] == "next"


def test_a_kernel_that_was_restarted_is_found_by_its_session(
    server: KernelWebsocket, socket: KernelSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_channels, "_PROBE_SECONDS", 0.01)
    server.close_sockets()  # the next connection asks sooner
    server.wait_for_client()
    for session in ("first", "first", "first", "second"):
        assert not socket.has_ended
        server.answer_probe(session)
    server.send("stream", stream("next"), session="second")
    assert take(socket)["content"]["text"] == "next"
    assert socket.has_ended == "restarting"
    assert socket.channels["control"].waiting_bytes == 0


def test_a_kernel_that_names_another_session_in_each_message_was_not_restarted(
    server: KernelWebsocket, socket: KernelSocket
) -> None:
    for session in ("1", "2", SESSION, "3", SESSION, SESSION, "1"):
        server.send("status", {"execution_state": "idle"}, session=session)
        take(socket)
    assert not socket.has_ended


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (302, "the Jupyter server was stopped"),
        (424, "the Jupyter server was stopped"),
        (403, "the Jupyter server refuses the token"),
        (404, "the Jupyter server no longer has the kernel"),
    ],
)
def test_a_broken_connection_says_what_became_of_the_server(
    server: KernelWebsocket, socket: KernelSocket, status: int, reason: str
) -> None:
    server.status = status
    server.close_sockets()
    wait_for_end(socket)
    assert reason in socket.lost


def test_a_reply_that_was_lost_with_the_connection_ends_the_connection(
    server: KernelWebsocket, socket: KernelSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_channels, "_PROBE_SECONDS", 0.01)
    socket.channels["shell"].send({"header": {"msg_id": "request", "msg_type": "execute_request"}})
    server.received.get(timeout=SECONDS)
    server.execution_state = "idle"
    server.close_sockets()
    wait_for_end(socket)
    assert "the end of the cell was lost" in socket.lost
