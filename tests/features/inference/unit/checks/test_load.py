"""The check `load` fails if steps are missing or requests failed, and does not trust the figures of a late worker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.features.inference.fakes.load_results import results, step, times
from tests.unit.judges.checks.conftest import Judge
from tests.unit.judges.checks.conftest import judge as judge  # noqa: PLC0414  # re-exports the fixture
from toolbox.features.inference.checks import load
from toolbox.ground.model.evidence import Evidence, Judgement
from toolbox.ground.model.verdicts import Cause


@pytest.fixture
def judged(judge: Judge, tmp_path: Path) -> Any:
    """Return a function that judges steps, given the rates that the settings name."""

    def call(*steps: dict[str, Any], rates: tuple[float, ...] = (4,), **fields: Any) -> Judgement:
        (tmp_path / "src").mkdir()
        (tmp_path / "files").mkdir()
        asked = [{"rate": rate, "concurrency": None, "seconds": 60} for rate in rates]
        (tmp_path / "src/settings.json").write_text(json.dumps({"server": {}, "load": {"steps": asked}}))
        (tmp_path / "files/load.json").write_text(json.dumps(results(*steps)))
        return judge(check="load", **fields)

    return call


def test_a_load_without_errors_passes(judged: Any) -> None:
    judgement = judged(step(4), step(8.0), rates=(4, 8))
    assert judgement == Judgement(True, "2 steps, 400 requests, 0 errors; the worker sent requests at most 1 ms late")


def test_errors_are_shown_with_the_most_frequent_messages(judged: Any) -> None:
    messages = [{"message": f"text {number}", "requests": number} for number in range(1, 6)]
    judgement = judged(step(errors=15, error_messages=messages))
    assert judgement == Judgement(
        False,
        "rate=4: 15 of 200 requests failed (7.5%), more than the allowed 0.0%\n"
        "  5 requests: text 5\n  4 requests: text 4\n  3 requests: text 3",
        "files/load.json",
    )


def test_some_errors_can_be_allowed(judged: Any) -> None:
    assert judged(step(errors=2), max_error_share=0.01).passed is True


def test_steps_that_did_not_run_fail(judged: Any) -> None:
    judgement = judged(step(4), rates=(4, 0.5, 16))
    assert (judgement.passed, judgement.cause) == (False, None)
    assert judgement.message == "2 of 3 steps did not end: rate=0.5, rate=16"


def test_a_step_that_the_settings_do_not_name_fails(judged: Any) -> None:
    message = "files/load.json has the step rate=5, which the settings do not name"
    assert judged(step(4), step(5)).message == message


def test_a_step_without_requests_fails(judged: Any) -> None:
    assert judged(step(samples=0)).message == "rate=4: no request was measured"


@pytest.mark.parametrize("samples", [200, 12])
def test_a_late_worker_is_an_error_of_the_infrastructure(judged: Any, samples: int) -> None:
    judgement = judged(step(client_delay=times(0.1, samples)))
    assert (judgement.passed, judgement.cause) == (False, Cause.INFRASTRUCTURE)
    late = "200" if samples == 200 else "100"  # p95, or the mean of a few samples
    assert judgement.message == (
        f"rate=4: the worker sent requests {late} ms late, more than 50 ms: it was overloaded, so the figures of this "
        "step are not valid"
    )


def test_errors_of_the_server_count_also_if_the_worker_was_late(judged: Any) -> None:
    judgement = judged(step(errors=1, client_delay=times(0.1)))
    assert judgement.cause is None
    assert [line.partition(":")[0] for line in judgement.message.splitlines()] == ["rate=4", "rate=4"]


@pytest.mark.parametrize("settings", ["", "{}", '{"load": null}', '{"load": {"steps": []}}', "[]"])
def test_settings_without_a_load_fail(judge: Judge, tmp_path: Path, settings: str) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/settings.json").write_text(settings)
    assert judge(check="load") == Judgement(False, "src/settings.json has no steps of a load")


def test_a_worker_that_wrote_nothing_fails(judged: Any, judge: Judge, tmp_path: Path) -> None:
    judged(step())
    (tmp_path / "files/load.json").unlink()
    assert judge(check="load") == Judgement(False, "files/load.json does not exist")


def test_settings_that_the_workload_has_changed_are_not_believed(judged: Any, tmp_path: Path) -> None:
    assert judged(step()).passed is True
    changed = Evidence(tmp_path, changed=frozenset({"src/settings.json"}))
    judgement = load.Check(settings="./src/settings.json").judge(changed)
    assert judgement == Judgement(False, "./src/settings.json is not as it was sent: the workload has changed it")


def test_refused_requests_are_no_errors_and_need_a_limit_of_their_own(judged: Any) -> None:
    judgement = judged(step(refused=10), max_error_share=1)
    message = "rate=4: 10 of 200 requests were refused (5.0%), more than the allowed 0.0%"
    assert judgement == Judgement(False, message, "files/load.json")


def test_allowed_refusals_and_requests_that_were_sent_twice_are_named(judged: Any) -> None:
    judgement = judged(step(refused=10, resent=1), max_refused_share=0.1)
    assert judgement.passed
    assert judgement.message.endswith(
        "; rate=4: 10 requests refused (429 or 503 with Retry-After)"
        "; rate=4: 1 request sent twice, because the server had closed the reused connection"
    )


@pytest.mark.parametrize("counts", [{"refused": 200}, {"errors": 200}, {"errors": 100, "refused": 100}])
def test_a_step_without_an_answer_never_passes(judged: Any, counts: dict[str, int]) -> None:
    judgement = judged(step(**counts), max_error_share=1, max_refused_share=1)
    assert (judgement.passed, judgement.message) == (False, "rate=4: no request was answered")
