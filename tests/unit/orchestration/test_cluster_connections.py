"""A run reaches its clusters by an extension."""

from __future__ import annotations

import pytest

from toolbox.ground.extensions import discovery
from toolbox.ground.model.clusters import Access
from toolbox.ground.model.errors import ConfigurationError
from toolbox.orchestration import cluster_connections
from toolbox.testing import Workspace


def test_without_the_extension_a_cluster_is_a_fault_of_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "available", lambda _: {})
    with pytest.raises(ConfigurationError, match=r"no `clusters/kubernetes\.py`, which clusters need"):
        cluster_connections.require("the cluster `sut`")


def test_the_workspace_can_replace_the_extension(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPGALLANT_WORKSPACE", str(workspace.directory))
    workspace.write({"clusters/kubernetes.py": "raise RuntimeError('no luck')\n"})
    with pytest.raises(ConfigurationError, match=r"clusters/kubernetes\.py is broken: RuntimeError: no luck"):
        cluster_connections.connect(Access())
