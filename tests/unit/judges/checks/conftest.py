"""This fixture creates a check from a mapping, as in a configuration, and judges a directory."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolbox.ground.extensions import loading
from toolbox.ground.extensions.protocols import CHECKS
from toolbox.ground.model.evidence import Evidence, Judgement, Metric, Reference

Judge = Callable[..., Judgement]


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    """Return a function that judges `tmp_path` by one check: `judge(check="files", glob="*")`."""

    def call(*metrics: Metric, check: str, reference: Reference | None = None, **spec: Any) -> Judgement:
        kind: Any = loading.load(CHECKS, check)
        evidence = Evidence(tmp_path, {metric.name: metric for metric in metrics}, reference)
        judgement = kind.model_validate(spec).judge(evidence)
        assert isinstance(judgement, Judgement)
        return judgement

    return call
