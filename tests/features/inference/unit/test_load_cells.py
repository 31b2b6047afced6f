"""The block `load` of a specification becomes cells, metrics and checks. Its faults are reported with their lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolbox.config.configuration import Configuration, Request
from toolbox.features.inference import cells, load_results
from toolbox.features.inference.load_steps import Load
from toolbox.ground.model.errors import ConfigurationError

CASES = """
- {name: text, request: {requests: [{text: x}]}}
- {name: broken, request: {requests: [{text: x}]}, error: {code: INVALID_ARGUMENT}}
- {name: tokens, request_type: tokenize, request: {requests: [{text: x}]}}
- {name: one, single_shard_only: true, request: {requests: [{text: x}]}}
"""
BASE = """
inference: {cells: null}
frameworks: {tiny: {command: [serve, "{grpc_port}"], protocols: [fmaas], shards_share: true}}
matrix:
  axes: {model: null, config: null, test: [cases, load]}
  zip: []
  workload: {command: [serve]}
  timeouts: {run: 600, silence: 300}
  settings: SETTINGS
  metrics: {errors_at_rate_4: {source: log, pattern: x}}
  checks: [{check: load, when: {test: load}}]
tests:
  - model: org/m
    configs: [{deployment_framework: tiny, name: a}, {deployment_framework: tiny, name: b, num_shard: 2}]
"""
LINE = "p.yaml:14"

Configure = Callable[..., Configuration]


@pytest.fixture
def configuration(tmp_path: Path) -> Configure:
    """Return a function that returns a configuration with fields of the specification, and entries of settings."""
    (tmp_path / "config").mkdir()
    (tmp_path / "cases.yaml").write_text(CASES)
    (tmp_path / "errors.yaml").write_text("- {name: e, request: {requests: []}, error: {code: INTERNAL}}")

    def load(load: str, cases: str = "[cases.yaml]", settings: str = "[]", more: str = "") -> Configuration:
        file = tmp_path / "config" / "p.yaml"
        fields = f"    load: {load}\n    cases: {cases}\n"
        file.write_text(BASE.lstrip().replace("SETTINGS", settings) + fields + more)
        return Configuration.load(Request(file, contracts=[Path("projects/inference/contracts").absolute()]))

    return load


def derived(configuration: Configuration) -> dict[str, Any]:
    """Return the derived values."""
    return cells.derive(configuration)


def faults(configuration: Configuration) -> list[str]:
    """Return what is wrong with a configuration."""
    with pytest.raises(ConfigurationError) as caught:
        cells.derive(configuration)
    return [
        fault.replace(f"{configuration.root}/config/", "").replace(f"{configuration.root}/", "")
        for fault in caught.value.faults
    ]


def test_each_config_gets_a_cell_for_its_cases_and_a_cell_for_the_load(configuration: Configure) -> None:
    values = derived(configuration("{rates: [0.5, 4], concurrencies: [8], seconds: 30, objectives: {first_token: 1}}"))
    assert values["matrix.axes.test"] == ["cases", "load", "cases", "load"]
    assert [config["name"] for config in values["matrix.axes.config"]] == ["a", "a", "b", "b"]
    cell = values["inference.cells"]["org/m"]["a"]["load"]
    common = {"seconds": 30, "warm_up": 10, "arrivals": "poisson", "seed": 0}
    assert cell["settings"]["load"] == {
        "steps": [
            {"rate": 0.5, "concurrency": None, **common},
            {"rate": 4, "concurrency": None, **common},
            {"rate": None, "concurrency": 8, **common},
        ],
        "objectives": {"first_token": 1, "per_token": None, "end_to_end": None},
    }
    assert [case["name"] for case in cell["cases"]["cases"]] == ["cases/text", "cases/one"]
    assert {each["name"]: each["reason"] for each in cell["expectations"]["skipped"]} == {
        "broken": "the case expects an error",
        "tokens": "the case does not ask for a text",
    }
    assert "load" not in values["inference.cells"]["org/m"]["a"]["cases"]["settings"]


def test_a_specification_may_have_only_a_load(configuration: Configure) -> None:
    values = derived(configuration("{rates: [4], cases: [cases.yaml]}", cases="null"))
    assert values["matrix.axes.test"] == ["load", "load"]


def test_each_figure_of_each_step_is_a_metric_of_the_models_with_this_step(configuration: Configure) -> None:
    other = "  - {model: n, configs: [{deployment_framework: tiny}], cases: [cases.yaml], load: {rates: [4, 8]}}\n"
    load = "{rates: [4], concurrencies: [2], objectives: {end_to_end: 2}, bounds: [end_to_end_p50]}"
    values = derived(configuration(load, more=other))
    metrics = values["matrix.metrics"]
    assert metrics["errors_at_rate_4"] == {"source": "log", "pattern": "x"}, "a metric of the file stays"
    assert metrics["end_to_end_p50_at_rate_4"] == {
        "source": "load",
        "step": "rate=4",
        "figure": "end_to_end_p50",
        "unit": "s",
        "direction": "lower",
        "when": {"model": ["org/m", "n"], "test": "load"},
    }
    assert metrics["goodput_at_rate_4"]["when"]["model"] == ["org/m"], "the other model has no objectives"
    assert metrics["tokens_per_second_at_concurrency_2"]["when"]["model"] == ["org/m"]
    assert "direction" not in metrics["offered_rate_at_rate_8"]
    assert len(metrics) == 3 * len(load_results.STORED) - 1
    bounded = {"check": "metric", "bounds": "auto", "when": {"model": ["org/m"], "test": "load"}}
    assert values["matrix.checks"] == [
        {"check": "load", "when": {"test": "load"}},
        {"metric": "end_to_end_p50_at_rate_4", **bounded},
        {"metric": "end_to_end_p50_at_concurrency_2", **bounded},
    ]


@pytest.mark.parametrize(
    ("load", "fault"),
    [
        ("{}", "a load needs `rates`, `concurrencies` or both"),
        ("{rates: []}", "a load needs `rates`, `concurrencies` or both"),
        ("{rates: [0]}", "load.rates[0]` must be greater than 0, not 0"),
        ("{rates: [-1]}", "load.rates[0]` must be greater than 0"),
        ("{rates: [.nan]}", "load.rates[0]` must be "),
        ("{rates: [.inf]}", "load.rates[0]` must be "),
        ("{rates: [1000000]}", "load.rates[0]` must be less than or equal to 10000"),
        ("{rates: [x]}", "load.rates[0]` must be a valid number"),
        ("{rates: [1, 2, 1.0]}", "the step rate=1 occurs more than once"),
        ("{concurrencies: [0]}", "load.concurrencies[0]` must be greater than or equal to 1"),
        ("{concurrencies: [1.5]}", "load.concurrencies[0]` must be a valid integer"),
        ("{concurrencies: [5000]}", "load.concurrencies[0]` must be less than or equal to 1000"),
        ("{concurrencies: [2, 2]}", "the step concurrency=2 occurs more than once"),
        ("{rates: [4], seconds: 10, warm_up: 10}", "`warm_up` 10 leaves nothing to measure in `seconds` 10"),
        ("{rates: [4], seconds: -1}", "load.seconds` must be greater than 0"),
        ("{rates: [4], seconds: 1.0e+308}", "load.seconds` must be less than or equal to 1000000"),
        ("{rates: [0.01]}", "the rate 0.01 sends less than one request in the 50 measured seconds"),
        ("{rates: [4], seed: 1000000000000001}", "load.seed` must be less than or equal to 1000000000000000"),
        ("{rates: [4], arrivals: uniform}", "load.arrivals` must be 'poisson' or 'constant'"),
        (
            "{rates: [4], bounds: [first_token_p51]}",
            "no figure `first_token_p51`: did you mean first_token_p95 or first_token_p50",
        ),
        ("{rates: [4], bounds: [goodput]}", "bounds of `goodput` need `objectives`"),
        ("{rates: [4], objectives: {first_token: 0}}", "load.objectives.first_token` must be greater than 0"),
        ("{rates: [4], objectives: {frist_token: 1}}", "did you mean first_token or per_token?"),
        ("{rate: [4]}", "load.rate` is an unknown field: did you mean rates?"),
        ("{rates: [4], cases: []}", "load.cases` must have at least 1 item"),
        ("{rates: [4], seconds: 36000}", "a step takes 36000 s without output, but `timeouts.silence` ends the cell"),
        (
            "{rates: [1, 2, 3], concurrencies: [4], seconds: 150}",
            "4 steps of 150 s take 600 s, but `timeouts.run` ends the cell after 600 s",
        ),
        ("{rates: [4], cases: [errors.yaml]}", "no case is left for the load on a (1 case: the case does not ask"),
    ],
)
def test_an_impossible_load_is_named_with_its_line(configuration: Configure, load: str, fault: str) -> None:
    found = faults(configuration(load))
    assert all(each.startswith(f"{LINE}: `tests[0].load") for each in found)
    assert any(fault in each for each in found), found


def test_a_specification_needs_cases_or_a_load(configuration: Configure) -> None:
    (fault,) = faults(configuration("null", cases="null"))
    assert fault.endswith("a specification needs `cases`, `load` or both")
    (fault,) = faults(configuration("{rates: [4]}", cases="null"))
    assert fault.endswith("the specification has no `cases`, so `load` needs `cases`")


def test_a_missing_case_file_of_the_load_is_named(configuration: Configure) -> None:
    (fault,) = faults(configuration("{rates: [4], cases: [nowhere.yaml]}"))
    assert fault == f"the case file nowhere.yaml does not exist (used by `tests[0].load.cases[0]`, {LINE})"


@pytest.mark.parametrize(
    ("settings", "is_possible"),
    [
        ("[{when: {test: load}, timeouts: {run: 900}}]", True),
        ("[{when: {test: [cases, load], config: [a, b]}, timeouts: {run: 900}}]", True),
        ("[{when: {test: load}, timeouts: {run: 900}}, {when: {}, timeouts: {run: 500}}]", False),
        ("[{when: {test: cases}, timeouts: {run: 900}}]", False),
        ("[{when: {config: a}, timeouts: {run: 900}}]", False),
        ("[{when: {chip: x}, timeouts: {run: 900}}]", True),
        ("[{when: {chip: x}, timeouts: {run: 60}}]", False),
        ("[{when: {test: load}, timeouts: {run: 60}}]", False),
        ("[{when: {test: load}, timeouts: {run: 900, silence: null}}, 5, {when: x}]", True),
    ],
)
def test_the_time_limits_of_matching_settings_count(configuration: Configure, settings: str, is_possible: bool) -> None:
    load = configuration("{rates: [1, 2, 3], seconds: 250}", settings=settings)
    if is_possible:
        assert cells.derive(load)
    else:
        assert "3 steps of 250 s take 750 s, but `timeouts.run` ends the cell after " in faults(load)[0]


def test_the_defaults_are_those_of_the_documentation() -> None:
    load = Load(rates=[1])
    assert (load.seconds, load.warm_up, load.arrivals, load.seed, load.bounds) == (60, 10, "poisson", 0, [])
