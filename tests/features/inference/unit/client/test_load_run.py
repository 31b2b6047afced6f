"""The steps of a load run one after another, are written after each step, and say that they are alive."""

from __future__ import annotations

import asyncio
import re
import resource
from pathlib import Path

import pytest

from tests.features.inference.fakes import virtual_time
from toolbox.features.inference import load_results
from toolbox.features.inference.client.answer_format import Answer, Case, FaultError, Limits, SettingsError
from toolbox.features.inference.client.key_mask import NO_KEY, KeyMask
from toolbox.features.inference.client.load_generator import Step
from toolbox.features.inference.client.load_run import LoadRun
from toolbox.features.inference.client.load_settings import LoadSettings
from toolbox.features.inference.client.load_summary import Objectives
from toolbox.ground.kit.server_answers import Generation

KEY = "sk-very-secret"


class Server:
    """Answers after two seconds."""

    def __init__(self, fault: str | None = None) -> None:
        self._fault = fault

    async def send(self, case: Case, answer: Answer) -> None:
        del case
        await asyncio.sleep(2)
        if self._fault:
            raise FaultError(self._fault)
        answer.add(0, Generation(text="a", stop_reason="MAX_TOKENS"), {})
        answer.end_stream()


def run(directory: Path, *steps: Step, server: Server | None = None, mask: KeyMask = NO_KEY) -> list[str]:
    """Run steps, and return the output."""
    lines: list[str] = []

    async def main() -> None:
        clients = {"completions": server or Server()}
        load = LoadRun(clients, Limits(seconds=60), directory=directory, mask=mask, say=lines.append)
        cases = [Case(name="a", protocol="completions", request={})]
        await load.run(LoadSettings(steps=steps, objectives=Objectives()), cases)

    virtual_time.run(main())
    return lines


def test_steps_do_not_disturb_each_other(tmp_path: Path) -> None:
    lines = run(tmp_path, Step(rate=1, seconds=10, arrivals="constant"), Step(concurrency=2, seconds=9))
    steps = load_results.read(tmp_path, "load.json").steps
    assert [(step.name, step.requests, step.errors) for step in steps] == [("rate=1", 10, 0), ("concurrency=2", 10, 0)]
    assert [step.end_to_end.max for step in steps] == pytest.approx([2, 2])
    assert [line.split(":")[0] for line in lines] == ["step rate=1"] * 3 + ["step concurrency=2"] * 3


def test_a_long_step_says_at_least_every_ten_seconds_that_it_is_alive(tmp_path: Path) -> None:
    lines = run(tmp_path, Step(concurrency=1, seconds=55, warm_up_seconds=5))
    assert lines[0] == "step concurrency=1: begins, takes 55 s, including a warm-up of 5 s"
    times = [re.findall(r"after (\d+) s, \d+ answers, 0 of them errors", line) for line in lines[1:-1]]
    assert times == [["10"], ["20"], ["30"], ["40"], ["50"]]
    assert lines[-1] == "step concurrency=1: 25 requests, 0 errors, first token p50 2000.0 ms, end to end p50 2000.0 ms"


def test_no_part_of_the_key_remains_when_an_error_is_shortened(tmp_path: Path) -> None:
    fault = "x" * 195 + KEY + "y" * 790 + KEY
    lines = run(tmp_path, Step(rate=1, seconds=5), server=Server(fault), mask=KeyMask(KEY))
    written = "".join(path.read_text() for path in tmp_path.iterdir()) + "".join(lines)
    assert "x***" in written
    assert "sk-" not in written


def test_a_step_that_needs_more_connections_than_files_may_be_open_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 256))
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    with pytest.raises(SettingsError, match=r"the step concurrency=157 needs more connections .*: 156"):
        run(tmp_path, Step(concurrency=156, seconds=1), Step(concurrency=157, seconds=1))


def test_requests_of_a_rate_are_limited_by_the_files_that_may_be_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (110, 110))
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    run(tmp_path, Step(rate=20, seconds=1, arrivals="constant"))
    (step,) = load_results.read(tmp_path, "load.json").steps
    assert (step.requests, step.errors) == (20, 10)
    assert step.error_messages[0].message == "not sent: 10 requests had no answer"
