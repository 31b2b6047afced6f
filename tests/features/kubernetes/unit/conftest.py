"""Fixtures for the unit tests of several packages: a fake API server and a connection to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.features.kubernetes.fakes import api_server
from tests.features.kubernetes.fakes.api_server import ApiServer
from toolbox.features.kubernetes.api.connection import Cluster
from toolbox.ground.model.clusters import Access


@pytest.fixture(name="server")
def _server(tmp_path: Path) -> Iterator[ApiServer]:
    with api_server.serving(tmp_path) as found:
        yield found


@pytest.fixture(name="cluster")
def _cluster(server: ApiServer) -> Iterator[Cluster]:
    found = Cluster(Access(str(server.kubeconfig)), label="sut")
    yield found
    found.close()
