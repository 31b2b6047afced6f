"""A hub that all live tests of a process share, because a hub takes several seconds to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.features.notebooks.servers import jupyterhub
from tests.features.notebooks.servers.jupyterhub import Hub


@pytest.fixture(scope="session")
def shared_hub() -> Iterator[Hub]:
    """Yield a hub. Each module that uses the hub deletes its servers and its faults."""
    with jupyterhub.serving() as hub:
        yield hub
