"""What tests of every kind share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.leftovers import Leftovers
from toolbox.testing import Workspace

settings.register_profile("untimed", deadline=None)  # a busy machine is no fault of a test's
settings.load_profile("untimed")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # a worker of pytest-xdist is a process of the session like others
        config.pluginmanager.register(Leftovers(config))


@pytest.fixture(scope="session", autouse=True)
def _own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test, and no fixture of a wider scope, writes into the store of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / "state"))
        patch.delenv("TOPGALLANT_RESULTS_DATABASE", raising=False)
        yield


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A team's repository with nothing in it yet."""
    return Workspace(tmp_path / "workspace")
