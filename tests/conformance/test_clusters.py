"""Requirements for every connection to a cluster; tests in `tests/live/` lease, compare and search a real cluster."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import yaml

from toolbox.ground.extensions import discovery, loading
from toolbox.ground.model.clusters import Access
from toolbox.ground.model.errors import ConfigurationError
from toolbox.orchestration.cluster_connections import CLUSTERS

each_cluster = pytest.mark.parametrize("name", discovery.available(CLUSTERS.folder))


@each_cluster
def test_a_connection_has_all_members_with_documentation(name: str) -> None:
    connection = loading.function(CLUSTERS, discovery.available(CLUSTERS.folder)[name])
    assert (inspect.getmodule(connection) or connection).__doc__
    assert connection.__doc__
    for member in CLUSTERS.members:
        assert getattr(connection, member).__doc__, member


@each_cluster
def test_a_connection_is_opened_without_a_request(name: str, tmp_path: Path) -> None:
    user = {"name": "u", "user": {"token": "t"}}
    cluster = {"name": "c", "cluster": {"server": "https://does-not-exist.invalid:6443"}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    file = tmp_path / "kubeconfig"
    document = {"clusters": [cluster], "users": [user], "contexts": [context], "current-context": "x"}
    file.write_text(yaml.safe_dump(document))
    connect = loading.function(CLUSTERS, discovery.available(CLUSTERS.folder)[name])
    connection = connect(Access(str(file)), "sut")
    assert connection.server == "https://does-not-exist.invalid:6443"
    lease = connection.lease("mine", "team")
    assert lease.label == "sut"
    assert lease.key == "https://does-not-exist.invalid:6443/team/mine"
    connection.close()


@each_cluster
def test_a_missing_access_is_a_fault_of_the_configuration(name: str, tmp_path: Path) -> None:
    connect = loading.function(CLUSTERS, discovery.available(CLUSTERS.folder)[name])
    with pytest.raises(ConfigurationError, match="kubeconfig"):
        connect(Access(str(tmp_path / "kubeconfig")), "sut")
