"""Fixtures that several files of live tests share: a cluster, a namespace, and a command line for the cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.features.kubernetes.live.cluster_tools import OURS, Tools
from tests.features.kubernetes.servers import kubernetes
from toolbox.testing import Workspace


@pytest.fixture(scope="module")
def cluster() -> Iterator[kubernetes.Cluster]:
    """Yield the cluster that the environment names."""
    with kubernetes.for_tests() as found:
        yield found


@pytest.fixture
def namespace(cluster: kubernetes.Cluster) -> Iterator[str]:
    """Yield a namespace with the label of namespaces that Topgallant has created."""
    with cluster.namespace() as name:
        cluster.core.patch_namespace(name, {"metadata": {"labels": OURS}})
        yield name


@pytest.fixture
def tools(workspace: Workspace, cluster: kubernetes.Cluster) -> Tools:
    """Return a command line for the cluster."""
    return Tools(workspace, cluster.kubeconfig)
