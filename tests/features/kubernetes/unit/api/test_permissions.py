from __future__ import annotations

from typing import Any

import pytest

from tests.features.kubernetes.fakes.api_server import ApiServer, Request, failure
from toolbox.features.kubernetes.api import permissions
from toolbox.features.kubernetes.api.connection import ApiError, Cluster
from toolbox.features.kubernetes.api.permissions import Permission

PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
REQUIRED_PERMISSIONS = [
    Permission("get", "pods/log"),
    Permission("create", "jobs", "batch"),
    Permission("list", "pods"),
]


def missing(cluster: Cluster) -> list[str]:
    return [str(need) for need in permissions.missing(cluster, REQUIRED_PERMISSIONS, timeout=5)]


def test_a_missing_permission_is_named_as_in_rbac(server: ApiServer, cluster: Cluster) -> None:
    def review(request: Request) -> dict[str, Any]:
        attributes = request.body["spec"]["resourceAttributes"]
        return {"status": {"allowed": True} if attributes["verb"] == "list" else {"denied": False}}

    server.answers("POST", PATH, review)
    assert missing(cluster) == ["get pods/log", "create jobs.batch"]


def test_a_subresource_is_sent_as_a_subresource(server: ApiServer, cluster: Cluster) -> None:
    server.answers("POST", PATH, {"status": {"allowed": True}})
    assert missing(cluster) == []
    log, jobs, _ = (each.body["spec"]["resourceAttributes"] for each in server.requests)
    expected = {"namespace": "tests", "verb": "get", "group": "", "resource": "pods", "subresource": "log"}
    assert log == expected
    assert jobs == {"namespace": "tests", "verb": "create", "group": "batch", "resource": "jobs"}


def test_an_account_that_may_not_ask_gets_an_error(server: ApiServer, cluster: Cluster) -> None:
    server.answers("POST", PATH, failure(403, "may not ask"))
    with pytest.raises(ApiError, match="sut: may not ask"):
        missing(cluster)


def test_a_dry_run_finds_a_missing_namespace_and_creates_nothing(server: ApiServer, cluster: Cluster) -> None:
    server.answers("POST", "/api/v1/namespaces/tests/configmaps", failure(404, 'namespaces "tests" not found'))
    with pytest.raises(ApiError, match='namespaces "tests" not found'):
        permissions.try_namespace(cluster, timeout=5)
    assert server.requests[0].get("dryRun") == "All"
