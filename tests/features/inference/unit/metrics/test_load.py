"""The source `load` reads a figure of a step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.features.inference.fakes.load_results import results, step
from toolbox.features.inference.metrics.load import Source


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """Return an attempt with two steps."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files/load.json").write_text(json.dumps(results(step(), step(None, concurrency=8, samples=12))))
    return tmp_path


def test_a_figure_is_read(measured: Path) -> None:
    assert Source(step="rate=4", figure="end_to_end_p50").read(measured) == 0.1
    assert Source(step="concurrency=8", figure="tokens_per_second").read(measured) == 80


@pytest.mark.parametrize(
    ("name", "figure", "reason"),
    [
        ("rate=5", "errors", r"no step `rate=5` has ended: did you mean rate=4\?"),
        ("concurrency=8", "first_token_p95", "p95 needs 20 samples, and the step has 12"),
    ],
)
def test_a_figure_that_is_not_known_is_a_fault(measured: Path, name: str, figure: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Source(step=name, figure=figure).read(measured)


def test_an_unknown_figure_is_refused_with_similar_names() -> None:
    with pytest.raises(ValidationError, match=r"no figure `first_token_p59`: did you mean first_token_p5?9?"):
        Source(step="rate=4", figure="first_token_p59")
