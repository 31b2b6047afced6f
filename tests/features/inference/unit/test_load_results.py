"""`load.json` comes from a target: figures are read strictly, and other content is refused with a reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.features.inference.fakes.load_results import results, step
from toolbox.features.inference import load_results


def read(directory: Path, content: object) -> load_results.LoadResults:
    """Write and read the results."""
    (directory / "load.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return load_results.read(directory, "load.json")


def test_every_figure_can_be_read(tmp_path: Path) -> None:
    only = read(tmp_path, results(step(errors=2, goodput=3.0))).step("rate=4")
    figures = {name: only.figure(name) for name in load_results.FIGURES}
    assert figures["errors"] == 2 / 200
    assert figures["goodput"] == 3.0
    assert figures["end_to_end_p95"] == 0.2
    assert figures["between_tokens_max"] == 0.01
    assert set(load_results.STORED) <= set(figures)


@pytest.mark.parametrize(
    ("fields", "figure", "reason"),
    [
        ({"samples": 12}, "end_to_end_p95", "no end_to_end_p95: p95 needs 20 samples, and the step has 12"),
        ({"samples": 62}, "first_token_p99", "no first_token_p99: p99 needs 100 samples, and the step has 62"),
        ({"samples": 1}, "first_token_p50", "no first_token_p50: p50 needs 2 samples, and the step has 1"),
        ({"samples": 0}, "per_token_mean", "no per_token_mean: no request has this time"),
        ({"samples": 0}, "errors", "no request"),
        ({}, "goodput", "no goodput, because the load has no objectives"),
    ],
)
def test_a_figure_that_is_not_known_has_a_reason(
    tmp_path: Path, fields: dict[str, Any], figure: str, reason: str
) -> None:
    only = read(tmp_path, results(step(**fields))).step("rate=4")
    with pytest.raises(ValueError, match=f"^the step rate=4 has {reason}$"):
        only.figure(figure)


def test_a_step_that_has_not_ended_is_named_with_the_others(tmp_path: Path) -> None:
    found = read(tmp_path, results(step(), step(None, concurrency=8)))
    with pytest.raises(ValueError, match=r"^no step `rate=44` has ended: did you mean rate=4\?$"):
        found.step("rate=44")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "Invalid JSON"),
        ("[]", "must be an object"),
        ("{}", "steps: Field required"),
        ("[" * 100_000, "Invalid JSON"),
        (json.dumps(results(step(requests=-1))), "steps.0.requests: must be greater than or equal to 0"),
        (json.dumps(results(step(errors=201))), "steps.0: more errors than requests"),
        (json.dumps(results(step(seconds=float("nan")))), "steps.0.seconds"),
        (json.dumps(results(step(tokens_per_second=float("inf")))), "steps.0.tokens_per_second"),
        (json.dumps(results(step(requests="5"))), "steps.0.requests: must be a valid integer"),
        (json.dumps(results(step(first_token=None))), "steps.0.first_token"),
        (json.dumps(results(step(name="\x1b[31m"))), "steps.0.name: must be printable"),
        (json.dumps(results(step(name="x" * 101))), "steps.0.name: must have at most 100 characters"),
        (json.dumps(results(step(), step())), "steps: two steps have the same name"),
        (json.dumps(results(*(step(n) for n in range(1, 502)))), "steps: must have at most 500 items"),
        (" " * (1 << 22) + "{}", "has more than 4194304 bytes"),
    ],
)
def test_other_content_is_refused(tmp_path: Path, content: str, reason: str) -> None:
    with pytest.raises(ValueError, match=r"^load\.json ") as caught:
        read(tmp_path, content)
    assert reason in str(caught.value)
    assert len(str(caught.value)) < 300


def test_fields_that_are_not_read_may_be_anything(tmp_path: Path) -> None:
    assert read(tmp_path, results(step(arrivals=[[]], more={"a": 1}))).steps[0].name == "rate=4"


def test_the_message_of_an_error_is_one_printable_line() -> None:
    shown = str(load_results.ErrorMessage(message="\x1b[31mfull\n" + "y" * 1000, requests=1))
    assert shown.isprintable()
    assert shown.startswith("1 request: ")
    assert len(shown) < 300
