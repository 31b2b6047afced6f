"""The cost of a run is known from its journal and its plan, and appears in its reports."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.fakes.history import Past, Tried
from toolbox.records.results import run_cost
from toolbox.records.runs import run_reader
from toolbox.records.runs.run_state import RunState
from toolbox.reports import run_page
from toolbox.reports.forge import github
from toolbox.reports.terminal import live_view, run_table

TPU: dict[str, Any] = {"cost_per_hour": 0.64, "shares_price": False}
FIVE_MINUTES = Tried(target="tpu", seconds=300)


def past(tmp_path: Path, cells: Mapping[str, Sequence[Tried]], **targets: Any) -> RunState:
    return run_reader.read(Past(cells, targets=targets).write(tmp_path))


def test_five_minutes_at_64_cents_an_hour_cost_5_3_cents_in_every_report(tmp_path: Path) -> None:
    run = past(tmp_path, {"x=a": [FIVE_MINUTES]}, tpu=TPU)
    assert str(run_cost.of(run)) == "0.053 USD"
    assert "<dt>Cost</dt><dd>0.053 USD</dd>" in run_page.render(run)
    assert "<br>cost: <code>0.053 USD</code>" in github.step_summary(run)
    stream = io.StringIO()
    with live_view.view(stream) as view:
        run_table.show(run, view)
    assert "cost: 0.053 USD" in stream.getvalue()


def test_an_unknown_part_stays_visible(tmp_path: Path) -> None:
    run = past(tmp_path, {"x=a": [FIVE_MINUTES], "x=b": [Tried(target="far")]}, tpu=TPU, far={"cost_per_hour": None})
    assert str(run_cost.of(run)) == "at least 0.053 USD: the cost of 1 attempt is unknown"


def test_a_run_without_prices_shows_no_cost(tmp_path: Path) -> None:
    run = past(tmp_path, {"x=a": [Tried(target="far")]}, far={"cost_per_hour": None})
    assert run_cost.of(run) is None
    assert "<dt>Cost</dt>" not in run_page.render(run)


def test_a_hostile_currency_is_shown_as_text(tmp_path: Path) -> None:
    run = past(tmp_path, {"x=a": [FIVE_MINUTES]}, tpu=TPU)
    request = run.directory / "run.json"
    request.write_text(json.dumps({**json.loads(request.read_text()), "currency": "<b>\x1b[2J" + "X" * 100}))
    assert "<b>" not in github.step_summary(run)
    assert "<dt>Cost</dt><dd>0.053 &lt;b&gt;" in run_page.render(run)
    stream = io.StringIO()
    with live_view.view(stream) as view:
        run_table.show(run, view)
    assert "\x1b" not in stream.getvalue()


def test_a_damaged_plan_means_that_no_cost_is_known(tmp_path: Path) -> None:
    run = past(tmp_path, {"x=a": [FIVE_MINUTES]}, tpu=TPU)
    for text in ("[]", '{"targets": []}', '{"targets": {"tpu": 1}}', '{"targets": {"tpu": {"cost_per_hour": "free"}}}'):
        (run.directory / "plan.json").write_text(text)
        assert run_cost.of(run) is None
