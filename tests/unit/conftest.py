"""Fixtures for the unit tests of several packages: a fake API server, a connection to it, and Python in a process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fakes import api_server
from tests.fakes.api_server import ApiServer
from toolbox.kubernetes.api.connection import Cluster
from toolbox.model.clusters import Access

Script = Callable[..., str]
ROOT = Path(__file__).parents[2]


@pytest.fixture(name="server")
def _server(tmp_path: Path) -> Iterator[ApiServer]:
    with api_server.serving(tmp_path) as found:
        yield found


@pytest.fixture(name="cluster")
def _cluster(server: ApiServer) -> Iterator[Cluster]:
    found = Cluster(Access(str(server.kubeconfig)), label="sut")
    yield found
    found.close()


@pytest.fixture(name="script")
def _script(tmp_path: Path) -> Script:
    """Return a function that runs Python source in a process in `tmp_path`, and returns the output."""

    def run(source: str, *args: str, env: dict[str, str] | None = None) -> str:
        preamble = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        return subprocess.run(
            [sys.executable, "-c", preamble + source, *args],
            cwd=tmp_path,
            env=env,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=60,
        ).stdout

    return run
