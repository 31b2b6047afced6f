"""The steps of a load are checked before anything starts, and mean what the orchestrator says."""

from __future__ import annotations

from typing import Any

import pytest

from toolbox.features.inference import load_results
from toolbox.features.inference.client import load_settings
from toolbox.features.inference.client.answer_format import SettingsError
from toolbox.features.inference.client.load_generator import Step
from toolbox.features.inference.client.load_settings import LoadSettings
from toolbox.features.inference.client.load_summary import Objectives
from toolbox.features.inference.client.settings_block import Block
from toolbox.features.inference.load_steps import Load

STEP = {"rate": 4, "seconds": 10}


def read(content: object) -> LoadSettings:
    return load_settings.read(Block(content, "load"))


def test_the_settings_of_the_orchestrator_are_understood() -> None:
    load = Load(rates=[0.5, 1e4], concurrencies=[1000], seconds=3, warm_up=1, seed=10**15, arrivals="constant")
    common: dict[str, Any] = {"seconds": 3.0, "warm_up_seconds": 1.0, "seed": 10**15, "arrivals": "constant"}
    found = read(load.settings)
    steps = [Step(rate=0.5, **common), Step(rate=10_000.0, **common), Step(concurrency=1000, **common)]
    assert found == LoadSettings(steps=steps, objectives=Objectives())
    assert [step.name for step in found.steps] == load.names


def test_objectives_are_read() -> None:
    objectives = {"first_token": 0.5, "per_token": None, "end_to_end": 5}
    load = Load.model_validate({"rates": [1], "objectives": objectives})
    assert read(load.settings).objectives == Objectives(first_token=0.5, end_to_end=5.0)


@pytest.mark.parametrize("rate", [0.1, 1, 1.5, 1 / 3, 1234567.8, 1e-5])
def test_a_step_has_the_name_by_which_its_results_are_read(rate: float) -> None:
    assert Step(rate=rate, seconds=1).name == load_results.step_name(rate, None)
    assert Step(concurrency=12, seconds=1).name == load_results.step_name(None, 12)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "load must be an object"),
        ({}, "load.steps has 0 steps"),
        ({"steps": {}}, "load.steps must be of the type list"),
        ({"steps": [1]}, r"load.steps\[0\] must be an object"),
        ({"steps": [STEP, {"rate": 4}]}, "load.steps has the step rate=4 more than once"),
        ({"steps": [{"seconds": 1}]}, r"load.steps\[0\]: a step has either a rate or a concurrency"),
        ({"steps": [STEP | {"concurrency": 1}]}, "either a rate or a concurrency"),
        ({"steps": [STEP | {"rate": 0}]}, r"load.steps\[0\].rate must be a positive float of at most 10000"),
        ({"steps": [STEP | {"rate": 10_001}]}, "rate must be a positive float of at most 10000"),
        ({"steps": [STEP | {"rate": float("nan")}]}, "rate must be a positive float"),
        ({"steps": [STEP | {"rate": "4"}]}, "rate must be a positive float"),
        ({"steps": [{"concurrency": 1001}]}, "concurrency must be a positive int of at most 1000"),
        ({"steps": [{"concurrency": 1.5}]}, "concurrency must be a positive int"),
        ({"steps": [STEP | {"seconds": 10**400}]}, "seconds must be a positive float"),
        ({"steps": [STEP | {"warm_up": -1}]}, "warm_up must be a non-negative float"),
        ({"steps": [STEP | {"warm_up": 10}]}, "a step must be longer than its warm-up"),
        ({"steps": [STEP | {"arrivals": "burst"}]}, "arrivals must be poisson or constant"),
        ({"steps": [STEP | {"seed": -1}]}, "seed must be a non-negative int"),
        ({"steps": [STEP | {"users": 1}]}, r"load.steps\[0\] has unknown fields: 'users'"),
        ({"steps": [STEP], "objectives": {"first_token": 0}}, "load.objectives.first_token must be a positive float"),
        ({"steps": [STEP], "objectives": {"p99": 1}}, "load.objectives has unknown fields: 'p99'"),
        ({"steps": [STEP], "pause": 1}, "load has unknown fields: 'pause'"),
    ],
)
def test_a_wrong_field_is_named(content: object, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        read(content)
