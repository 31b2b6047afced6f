"""The local machine is a target without an address and without fields."""

import pytest
from pydantic import ValidationError

from toolbox.targets.backends.local import Target


def test_this_machine_needs_no_address() -> None:
    assert Target().address("anything") is None


def test_this_machine_has_no_fields() -> None:
    with pytest.raises(ValidationError, match="host"):
        Target.model_validate({"host": "far"})
