"""The fixture of a machine over SSH, which several files of live tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers import openssh


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[openssh.Server]:
    """Yield a machine over SSH, whose PATH begins with the Python of the tests, which has numpy."""
    with openssh.serving(tmp_path_factory.mktemp("server")) as running:
        yield running
