"""A connection to an agent returns answers, passes on events, and reports its end."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from toolbox.ground.system import processes
from toolbox.ground.system.processes import Channel
from toolbox.targets import agent_connection, messages
from toolbox.targets.agent_connection import Connection, ConnectionLost
from toolbox.targets.messages import Message

# The program that replaces the agent begins like the agent: it first reads past the agent's source text.
BEGIN: Final = """
import json, os, sys, time
read = sys.stdin.buffer.read
read(int(read(8)))
def say(**message):
    print(json.dumps(message), flush=True)
def hear():
    return json.loads(sys.stdin.readline())
hello = dict(event="hello", home="/home")
"""


class Talk:
    """A connection to a program, with the events that it receives and the number of its ends."""

    def __init__(self, source: str, mark: Path) -> None:
        self.events: list[Message] = []
        self.ended = threading.Event()
        self.ends = 0
        channel = Channel([sys.executable, "-c", BEGIN + source], processes.environment(mark))
        self.connection = Connection(channel, self.events.append, self._end)

    def _end(self, ended: Connection) -> None:
        assert ended is self.connection
        self.ends += 1
        self.ended.set()


Talks = Callable[[str], Talk]


@pytest.fixture
def talk(tmp_path: Path) -> Iterator[Talks]:
    """Return a function that starts a program in place of the agent; the source in the call says what it does."""
    talks: list[Talk] = []

    def start(source: str) -> Talk:
        talks.append(Talk(source, tmp_path))
        return talks[-1]

    yield start
    for one in talks:
        one.connection.close()


def test_login_output_before_the_first_message_is_skipped(talk: Talks) -> None:
    source = 'print("Welcome!\\n5\\n{}\\nnull\\n{\\"event\\": 1}"); say(**hello); hear()'
    assert talk(source).connection.start_agent()["home"] == "/home"


def test_answers_may_arrive_in_any_order(talk: Talks) -> None:
    both = talk("say(**hello); a, b = hear(), hear(); say(id=b['id'], op=b['op']); say(id=a['id'], op=a['op']); hear()")
    both.connection.start_agent()
    with ThreadPoolExecutor() as threads:
        answers = [threads.submit(both.connection.request, op) for op in ("one", "two")]
        assert [answer.result()["op"] for answer in answers] == ["one", "two"]


def test_events_are_passed_on_as_they_arrive(talk: Talks) -> None:
    one = talk("say(**hello); say(event='log', n=1); say(event='ended', n=2); say(id=hear()['id'])")
    one.connection.start_agent()
    one.connection.request("state")
    assert [event["n"] for event in one.events] == [1, 2]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("sys.exit(3)", "the agent ended with status 3"),
        ("sys.exit('Permission denied (publickey).')", r"Permission denied \(publickey\)\."),
        ("print('line 1', file=sys.stderr); sys.exit('line 2')", "line 2\nprinted before it:\n  line 1"),
        ("os.kill(os.getpid(), 9)", "the agent ended with status -9"),
    ],
)
def test_the_error_contains_why_the_agent_does_not_start(talk: Talks, source: str, reason: str) -> None:
    one = talk(source)
    with pytest.raises(ConnectionLost, match=f"^{reason}$"):
        one.connection.start_agent()
    assert one.ended.wait(60)
    assert one.ends == 1


def test_an_agent_that_does_not_start_in_time_is_closed(talk: Talks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_connection, "_HELLO_SECONDS", 0.3)
    one = talk("read()")
    with pytest.raises(ConnectionLost, match=r"^the agent did not start within 0\.3 s$"):
        one.connection.start_agent()
    assert one.ended.is_set()


def test_a_request_without_an_answer_in_time_fails(talk: Talks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_connection, "_ANSWER_SECONDS", 0.3)
    one = talk("say(**hello); read()")
    one.connection.start_agent()
    with pytest.raises(ConnectionLost, match=r"^the agent did not answer within 0\.3 s$"):
        one.connection.request("state")


@pytest.mark.parametrize(
    "nonsense", ["Killed", "5", "null", "[]", "{}", '{"id": 1', '{"id": [1]}', '{"event": []}', '{"event": "hello"}']
)
def test_a_malformed_message_ends_the_connection(talk: Talks, nonsense: str) -> None:
    one = talk(f"say(**hello); hear(); print({nonsense!r}, flush=True); read()")
    one.connection.start_agent()
    with pytest.raises(ConnectionLost, match="the agent ended with status 0"):
        one.connection.request("state")
    assert one.ends == 1


def test_the_end_of_the_connection_fails_open_requests(talk: Talks) -> None:
    one = talk("say(**hello); hear(); hear(); sys.exit('out of memory')")
    one.connection.start_agent()
    with ThreadPoolExecutor() as threads:
        answers = [threads.submit(one.connection.request, "state") for _ in range(2)]
        assert [str(answer.exception()) for answer in answers] == ["out of memory"] * 2


def test_a_request_after_the_end_of_the_connection_fails(talk: Talks) -> None:
    one = talk("say(**hello)")
    one.connection.start_agent()
    assert one.ended.wait(60)
    with pytest.raises(ConnectionLost, match="the connection has ended"):
        one.connection.request("state")


def test_a_request_while_the_connection_is_closed_fails(talk: Talks) -> None:
    """A request fails at every moment of `close`, also before the reader has seen the end of the output."""
    one = talk("say(**hello); read(); time.sleep(0.5)")
    one.connection.start_agent()
    with ThreadPoolExecutor() as threads:
        closing = threads.submit(one.connection.close)
        while not closing.done():
            with pytest.raises(ConnectionLost):
                one.connection.request("state")
        closing.result()


def test_closing_twice_is_not_an_error(talk: Talks) -> None:
    one = talk("say(**hello); read()")
    one.connection.start_agent()
    one.connection.close()
    one.connection.close()
    assert one.ends == 1


def test_a_message_that_is_too_long_is_not_read(talk: Talks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "LONGEST", 1000)
    one = talk("say(**hello); n = hear()['id']; say(id=n, text='a' * 900); hear(); say(text='a' * 1000); read()")
    one.connection.start_agent()
    one.connection.request("state")
    fault = "the agent sent a message that is too long: a line has more than 1000 bytes"
    with pytest.raises(ConnectionLost, match=fault):
        one.connection.request("state")
