"""A load on a running server: the files of the worker, and what its end means."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolbox.features.inference import case_files
from toolbox.features.inference.load_steps import Load
from toolbox.features.inference.local_worker import RunningServer
from toolbox.features.inference.standalone_load import StandaloneLoad
from toolbox.ground.model.errors import UsageError

CASES = """
- {name: text, request: {prompt: x}}
- {name: error, request: {prompt: x}, error: {status: 400}}
- {name: other, request: {requests: [{text: x}]}}
"""
HTTP = RunningServer(url="http://127.0.0.1:8000")
LOAD = Load(rates=[2], concurrencies=[3], seconds=5, warm_up=1)


@pytest.fixture
def cases(tmp_path: Path) -> list[case_files.Case]:
    file = tmp_path / "prompts.yaml"
    file.write_text(CASES)
    return case_files.load(file)


def test_the_worker_gets_the_server_the_steps_and_the_cases_that_are_fit(cases: list[case_files.Case]) -> None:
    load = StandaloneLoad.of(HTTP, LOAD, cases, timeout=7)
    assert (load.settings["server"]["url"], load.settings["timeout"]) == (HTTP.url, 7)
    assert load.settings["load"] == LOAD.settings
    assert [case["name"] for case in load.cases["cases"]] == ["prompts/text"]


def test_settings_that_the_worker_refuses_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"settings\.json"):
        StandaloneLoad(HTTP, {}, {}).run(tmp_path, say=print)


def test_a_load_without_a_fit_case_is_refused_with_the_reasons(cases: list[case_files.Case]) -> None:
    with pytest.raises(
        UsageError, match=r"no case is left for the load.*: the server does not speak fmaas, only openai"
    ):
        StandaloneLoad.of(HTTP, LOAD, cases[1:], timeout=7)
