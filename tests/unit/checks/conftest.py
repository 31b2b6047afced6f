"""What the tests of the checks share: a check from a mapping, as the configuration writes it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolbox.model.evidence import Evidence, Judgement, Metric
from toolbox.orchestration import judging

Judge = Callable[..., Judgement]


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    """Judge what is in the test's directory by one check: `judge(check="files", glob="*")`."""

    def call(*metrics: Metric, **spec: Any) -> Judgement:
        judgement = judging.parse_check(spec).judge(Evidence(tmp_path, {metric.name: metric for metric in metrics}))
        assert isinstance(judgement, Judgement)
        return judgement

    return call
