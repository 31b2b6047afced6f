"""`cluster cleanup_namespace` refuses to delete Jobs of runs that may be active, on a fake API server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.features.kubernetes.fakes.api_server import ApiServer, failure
from toolbox.features.kubernetes.api.connection import Cluster
from toolbox.features.kubernetes.api.objects import Objects
from toolbox.features.kubernetes.library import cluster_cleanup
from toolbox.ground.model.errors import ConfigurationError

OURS = {"app.kubernetes.io/managed-by": "topgallant"}
LEASES = "/apis/coordination.k8s.io/v1/namespaces/tests/leases"
JOBS = "/apis/batch/v1/namespaces/tests/jobs"


def items(*found: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": "1"}, "items": list(found)}


@pytest.fixture(name="server")
def _server(server: ApiServer) -> ApiServer:
    """Return a server with one unfinished Job of the run r-1."""
    job = {"metadata": {"name": "j", "namespace": "tests", "uid": "u", "labels": {**OURS, "topgallant.dev/run": "r-1"}}}
    verbs = ["list", "delete", "watch"]
    kinds = {"resources": [{"name": "jobs", "kind": "Job", "namespaced": True, "verbs": verbs}]}
    server.answers("GET", "/api/v1/namespaces/tests", {"metadata": {"name": "tests", "labels": OURS}})
    server.answers("GET", "/api/v1", {"resources": []})
    server.answers("GET", "/apis", {"groups": [{"name": "batch", "preferredVersion": {"groupVersion": "batch/v1"}}]})
    server.answers("GET", "/apis/batch/v1", kinds)
    server.answers("GET", JOBS, items(job), items())
    server.answers("DELETE", f"{JOBS}/j", {})
    return server


def clean(cluster: Cluster, tmp_path: Path, run: str | None) -> dict[str, Any]:
    given = {"run": run, "delete_namespace": False, "force": False, "timeout": 20.0, "directory": str(tmp_path)}
    return cluster_cleanup.work(Objects(cluster), given)


def test_an_unfinished_job_is_kept_unless_its_run_is_named(server: ApiServer, cluster: Cluster, tmp_path: Path) -> None:
    server.answers("GET", LEASES, items())
    with pytest.raises(ConfigurationError, match="the runs r-1 have unfinished Jobs"):
        clean(cluster, tmp_path, None)
    assert server.count("DELETE", f"{JOBS}/j") == 0
    assert not (tmp_path / "deleted.json").exists()


def test_an_account_that_may_not_list_leases_is_warned_that_the_run_may_be_alive(
    server: ApiServer, cluster: Cluster, tmp_path: Path
) -> None:
    server.answers("GET", LEASES, failure(403, "leases is forbidden"))
    done = clean(cluster, tmp_path, "r-1")
    assert done["warnings"] == ["this account may not list leases: r-1 may be active"]
    assert server.count("DELETE", f"{JOBS}/j") == 1
    assert json.loads((tmp_path / "deleted.json").read_text()) == {"deleted": ["Job j"], "notes": []}


def test_a_missing_namespace_has_nothing_to_delete(server: ApiServer, cluster: Cluster, tmp_path: Path) -> None:
    server.answers("GET", "/api/v1/namespaces/tests", failure(404))
    done = clean(cluster, tmp_path, None)
    assert (done["changed"], done["warnings"]) == (False, ["there is no namespace tests"])
    assert json.loads((tmp_path / "deleted.json").read_text()) == {"deleted": [], "notes": []}
