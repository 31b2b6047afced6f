"""A faulty receiver of messages is reported with its line."""

from __future__ import annotations

import pytest

from tests.unit.config.conftest import Load
from tests.unit.config.conftest import _directory as _directory  # noqa: PLC0414  # re-exports the fixture
from tests.unit.config.conftest import load as load  # noqa: PLC0414
from toolbox.ground.model.errors import ConfigurationError


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        ("{notifer: slack}", "unknown notifier `None`"),
        ("{notifier: slak}", "unknown notifier `slak`: did you mean slack"),
        ("{notifier: slack}", "notifier `slack`: url: Field required"),
        ("{notifier: slack, url: 'https://h/x'}", "url: must be a secret"),
        ("{notifier: slack, channel: x}", "channel: Extra inputs are not permitted"),
    ],
)
def test_a_faulty_receiver_is_reported_with_its_line(load: Load, entry: str, fault: str) -> None:
    with pytest.raises(ConfigurationError, match=r"config\.yaml:1: `notifications\.team`: ") as caught:
        load(f"notifications: {{team: {entry}}}\n").check()
    assert fault in str(caught.value)
    assert "https://h" not in str(caught.value)
