"""A comment may not give a pod other secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.config.test_comment_limits import CONFIG, changed
from toolbox.ground.model.errors import UsageError


@pytest.mark.parametrize("listed", ["**", "*", "matrix", "matrix.workload.**"])
def test_the_secrets_of_a_pod_are_never_overridable(tmp_path: Path, listed: str) -> None:
    config = CONFIG.replace("overridable: [", f'overridable: ["{listed}", ')
    pod = {"image": "a:1", "secrets": {"A": {"name": "s", "key": "k"}}}
    with pytest.raises(UsageError, match="a comment may never change `"):
        changed(tmp_path, {"matrix.workload.pod": pod}, config=config)
