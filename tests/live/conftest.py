"""What live tests of several files share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.live.cluster_tools import OURS, Tools
from tests.servers import kubernetes, openssh
from toolbox.testing import Workspace


@pytest.fixture(scope="module")
def cluster() -> Iterator[kubernetes.Cluster]:
    """The cluster of the environment."""
    with kubernetes.for_tests() as found:
        yield found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[openssh.Server]:
    """A machine over SSH, on which the Python of the tests, which has numpy, is found first."""
    with openssh.serving(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def namespace(cluster: kubernetes.Cluster) -> Iterator[str]:
    """A namespace that is ours."""
    with cluster.namespace() as name:
        cluster.core.patch_namespace(name, {"metadata": {"labels": OURS}})
        yield name


@pytest.fixture
def tools(workspace: Workspace, cluster: kubernetes.Cluster) -> Tools:
    """The command line."""
    return Tools(workspace, cluster.kubeconfig)
