"""A missing client library is reported, with the name of the library."""

from __future__ import annotations

from tests.functional.test_missing_libraries import without as without  # noqa: PLC0414  # re-exports the fixture
from toolbox.testing import Workspace


def test_a_command_for_tpus_needs_its_library(small: Workspace, without: dict[str, str]) -> None:
    outcome = small.run("tpu", "list", "--project=my-project", env=without)
    assert outcome.exit_code == 2, str(outcome)
    assert "the TPU API needs google.cloud.tpu_v2, which is not installed" in outcome.stderr
