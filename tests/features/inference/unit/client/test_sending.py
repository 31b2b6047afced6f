"""Cases are sent in order or several at once, and each gets its answers whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from toolbox.features.inference.client.answer_format import Answer, Case, FaultError, InvalidRequestError, Limits
from toolbox.features.inference.client.sending import Sender, streams
from toolbox.ground.kit.server_answers import ServerError

LIMITS = Limits(seconds=0.05)


class ScriptedClient:
    """Behaves as the function for the name of a case says."""

    def __init__(self, behaviour: Callable[[Case], Awaitable[None]]) -> None:
        self._behaviour = behaviour
        self.sent: list[str] = []

    async def send(self, case: Case, answer: Answer) -> None:
        del answer
        self.sent.append(case.name)
        await self._behaviour(case)


class RefusingClient:
    """Refuses a number of requests for now, and answers the later ones."""

    def __init__(self, refusals: int, retry_after: float | None = 0.001) -> None:
        self._refusals = refusals
        self._retry_after = retry_after
        self.sent: list[bool] = []

    async def send(self, case: Case, answer: Answer) -> None:
        del case
        self.sent.append(answer.stream)
        if len(self.sent) <= self._refusals:
            answer.error = ServerError(code="busy", message="later", status=503, retry_after=self._retry_after)


def cases(*names: str) -> Sequence[Case]:
    return [Case(name=name, protocol="completions", request={}) for name in names]


def send(
    client: ScriptedClient, names: str, concurrency: int = 1, limits: Limits = LIMITS, end: str | None = None
) -> list[Answer]:
    """Send a case for each letter. With `end`, the server ends when the case "x" is sent."""
    answers: list[Answer] = []

    async def main() -> None:
        server_end: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        client.server_end = server_end  # type: ignore[attr-defined]
        sender = Sender({"completions": client}, limits, receive=answers.append, server_end=server_end if end else None)
        await sender.send_all(cases(*names), concurrency)

    asyncio.run(main())
    return answers


async def nothing(_: Case) -> None:
    pass


async def forever(_: Case) -> None:
    await asyncio.get_running_loop().create_future()


def test_cases_are_sent_in_their_order() -> None:
    client = ScriptedClient(nothing)
    answers = send(client, "abc")
    assert client.sent == ["a", "b", "c"]
    assert [answer.case for answer in answers] == ["a", "b", "c"]


@pytest.mark.parametrize("concurrency", [1, 2, 5])
def test_at_most_so_many_cases_run_at_once(concurrency: int) -> None:
    running, most = 0, 0

    async def behaviour(_: Case) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _turn in range(5):
            await asyncio.sleep(0)
        running -= 1

    assert len(send(ScriptedClient(behaviour), "abcdefghij", concurrency)) == 10
    assert most == concurrency


def test_a_fault_does_not_stop_the_others() -> None:
    async def behaviour(case: Case) -> None:
        if case.name == "b":
            raise FaultError("half a stream")

    assert [answer.fault for answer in send(ScriptedClient(behaviour), "abc")] == [None, "half a stream", None]


def test_an_unexpected_error_of_the_client_is_a_fault(capsys: pytest.CaptureFixture[str]) -> None:
    async def behaviour(_: Case) -> None:
        raise ZeroDivisionError("sk-ours")

    (answer,) = send(ScriptedClient(behaviour), "a")
    assert answer.fault == "the client cannot handle the answer: ZeroDivisionError: sk-ours"
    place = capsys.readouterr().err
    assert "in behaviour" in place
    assert "Error: sk-ours" not in place  # only the worker masks the API key


def test_after_three_timeouts_the_rest_is_not_sent() -> None:
    client = ScriptedClient(forever)
    answers = send(client, "abcde")
    assert client.sent == ["a", "b", "c"]
    assert answers[2].fault == "the time limit of 0.05 s was exceeded"
    assert answers[4].fault == "the request was not sent: the last 3 requests exceeded the time limit of 0.05 s"


def test_an_answer_between_timeouts_resets_their_count() -> None:
    async def behaviour(case: Case) -> None:
        await (nothing(case) if case.name == "x" else forever(case))

    client = ScriptedClient(behaviour)
    send(client, "abxcdxe")
    assert client.sent == list("abxcdxe")


def test_a_library_that_swallows_the_cancellation_is_cancelled_again() -> None:
    swallowed = 0

    async def behaviour(case: Case) -> None:
        nonlocal swallowed
        try:
            await forever(case)
        except asyncio.CancelledError:
            swallowed += 1
            await forever(case)

    (answer,) = send(ScriptedClient(behaviour), "a")
    assert swallowed == 1
    assert answer.fault == "the time limit of 0.05 s was exceeded"


def test_the_end_of_the_server_ends_the_running_requests() -> None:
    async def behaviour(case: Case) -> None:
        if case.name == "x":
            client.server_end.set_result("the server ended with status 1")  # type: ignore[attr-defined]
            raise FaultError("connection lost")
        await forever(case)

    client = ScriptedClient(behaviour)
    answers = send(client, "axb", concurrency=2, limits=Limits(seconds=100), end="x")
    assert {answer.case: answer.fault for answer in answers} == {
        "x": "connection lost; the server ended with status 1",
        "b": "the request was not sent: the server ended with status 1",
        "a": "the answer did not end; the server ended with status 1",
    }


def test_an_invalid_request_is_not_blamed_on_the_end_of_the_server() -> None:
    async def behaviour(_: Case) -> None:
        client.server_end.set_result("the server ended")  # type: ignore[attr-defined]
        raise InvalidRequestError("no field x")

    client = ScriptedClient(behaviour)
    assert send(client, "a", end="a")[0].fault == "the request is invalid: no field x"


@pytest.mark.parametrize(
    ("protocol", "request_", "stream", "expected"),
    [
        ("completions", {}, False, [False]),
        ("completions", {}, True, [False, True]),
        ("chat", {"stream": True}, False, [True]),
        ("chat", {"stream": True}, True, [True]),
        ("models", {}, True, [False]),
        ("fmaas", {"requests": [{"text": "a"}]}, True, [False, True]),
        ("fmaas", {}, True, [False]),
        ("tokenize", {"requests": [{"text": "a"}]}, True, [False]),
    ],
)
def test_a_replay_is_a_second_request(
    protocol: str, request_: dict[str, Any], stream: bool, expected: Sequence[bool]
) -> None:
    assert streams(Case(name="a", protocol=protocol, request=request_, stream=stream)) == expected


@pytest.mark.parametrize(
    ("refusals", "retries", "retry_after", "requests", "is_error"),
    [
        (2, 2, 0.001, 3, False),
        (2, 3, 0.0, 3, False),
        (3, 2, 0.001, 3, True),
        (1, 0, 0.001, 1, True),
        (1, 2, None, 1, True),  # no `Retry-After`
        (1, 2, 3600.0, 1, True),  # longer than the time limit of a request
    ],
)
def test_a_refused_request_is_sent_again(
    refusals: int, retries: int, retry_after: float | None, requests: int, is_error: bool
) -> None:
    client = RefusingClient(refusals, retry_after)
    answers: list[Answer] = []
    case = Case(name="a", protocol="completions", request={}, retries=retries)

    async def main() -> None:
        await Sender({"completions": client}, LIMITS, receive=answers.append).send_all([case])

    asyncio.run(main())
    assert len(client.sent) == requests
    assert [(answer.refusals, answer.error is not None) for answer in answers] == [(requests - 1, is_error)]


def test_the_end_of_the_server_ends_the_pause_before_a_retry() -> None:
    async def main() -> list[Answer]:
        answers: list[Answer] = []
        end: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        sender = Sender(
            {"completions": RefusingClient(1, 60.0)}, Limits(seconds=60), receive=answers.append, server_end=end
        )
        asyncio.get_running_loop().call_later(0.01, end.set_result, "the server ended")
        await sender.send_all([Case(name="a", protocol="completions", request={}, retries=1)])
        return answers

    (answer,) = asyncio.run(main())
    assert answer.fault == "the request was not sent: the server ended"
