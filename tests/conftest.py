"""What tests of every kind share."""

from pathlib import Path

import pytest

from toolbox.testing import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A team's repository with nothing in it yet."""
    return Workspace(tmp_path / "workspace")
