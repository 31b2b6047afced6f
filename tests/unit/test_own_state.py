"""The tests use their own store, also in fixtures that are created before the first test."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def state_of_a_module() -> str:
    """Return the directory of the store as a fixture with module scope sees it."""
    return os.environ.get("XDG_STATE_HOME", "")


def test_a_fixture_of_a_module_sees_the_store_of_the_tests(
    state_of_a_module: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert Path(state_of_a_module) == tmp_path_factory.getbasetemp() / "state"
