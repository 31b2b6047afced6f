"""A wrong flag is named before a missing client library."""

from __future__ import annotations

import pytest

from tests.functional.test_missing_libraries import refuse_flag
from tests.functional.test_missing_libraries import without as without  # noqa: PLC0414  # re-exports the fixture
from toolbox.testing import Workspace


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        (["load", "--url=http://127.0.0.1:1", "--cases=x"], "a load needs --rates, --concurrencies or both"),
        (["record_cases", "--url=nowhere", "--cases=x", "--output=y"], "--url must be http://HOST:PORT"),
    ],
)
def test_a_wrong_flag_is_named_before_a_missing_library(
    small: Workspace, without: dict[str, str], command: list[str], fault: str
) -> None:
    refuse_flag(small, without, ["inference", *command], fault)
