"""Namespaces and owner objects are found and deleted by their labels. Objects of other owners are not changed."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.fakes.ledger import OWNER, MemoryLedger
from tests.features.kubernetes.fakes import api_server
from tests.features.kubernetes.fakes.api_server import ApiServer, failure
from tests.features.kubernetes.fakes.stored_objects import StoredObjects
from toolbox.features.kubernetes import owned_objects
from toolbox.features.kubernetes.api.connection import Cluster
from toolbox.features.kubernetes.api.objects import CONFIG_MAP, NAMESPACE
from toolbox.ground.model.clusters import Access
from toolbox.ground.model.errors import ConfigurationError, StepError
from toolbox.ground.model.resources import Owner

SPACES, MAPS, ALL_MAPS = "/api/v1/namespaces", "/api/v1/namespaces/tests/configmaps", "/api/v1/configmaps"
OTHER = Owner("run-2", "project", "bob", "desk")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    with api_server.serving(tmp_path) as found:
        yield found


@pytest.fixture
def cluster(server: ApiServer) -> Iterator[Cluster]:
    with closing(Cluster(Access(str(server.kubeconfig)))) as found:
        yield found


@pytest.fixture
def spaces(server: ApiServer) -> StoredObjects:
    return StoredObjects(server, SPACES)


@pytest.fixture
def ledger() -> MemoryLedger:
    return MemoryLedger()


def create(cluster: Cluster, ledger: MemoryLedger, *, keep: bool = False) -> None:
    owned_objects.create_namespace(cluster, ledger, "perf", keep=keep)


def calls(ledger: MemoryLedger) -> list[str]:
    return [call.partition(" ")[0] for call in ledger.calls]


def test_a_created_namespace_is_planned_first(cluster: Cluster, ledger: MemoryLedger, spaces: StoredObjects) -> None:
    create(cluster, ledger)
    assert calls(ledger) == ["plan", "plan", "created"]
    labels = spaces.objects["perf"]["metadata"]["labels"]
    assert labels["app.kubernetes.io/managed-by"] == "topgallant"
    assert labels["topgallant.dev/user"] == OWNER.user
    (entry,) = ledger.open_resources()
    assert entry.resource.kind == "kubernetes_namespace"
    assert entry.resource.command.endswith("--context=it delete namespace perf")


def test_an_existing_namespace_is_not_put_on_the_ledger(
    cluster: Cluster, ledger: MemoryLedger, spaces: StoredObjects
) -> None:
    spaces.put(SPACES, "perf", labels=owned_objects.labels(OTHER, 60))
    create(cluster, ledger)
    assert ledger.open_resources() == []
    assert spaces.server.count("POST", SPACES) == 0


def test_a_namespace_that_another_user_creates_at_the_same_time_is_not_on_the_ledger(
    cluster: Cluster, ledger: MemoryLedger, spaces: StoredObjects
) -> None:
    spaces.put(SPACES, "perf", labels={})
    spaces.server.answers("GET", f"{SPACES}/perf", failure(404), spaces.objects["perf"])
    create(cluster, ledger)
    assert (calls(ledger), ledger.open_resources()) == (["plan", "deleted"], [])


def test_a_resumed_run_adopts_the_namespace_that_it_created(
    cluster: Cluster, ledger: MemoryLedger, spaces: StoredObjects
) -> None:
    spaces.put(SPACES, "perf", labels=owned_objects.labels(OWNER, 60))
    ledger.plan(owned_objects.resource(cluster, NAMESPACE, "perf", keep=True))
    create(cluster, ledger, keep=True)
    assert [entry.is_kept for entry in ledger.open_resources()] == [True]


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_namespace_that_the_account_may_not_create_is_not_on_the_ledger(
    cluster: Cluster, ledger: MemoryLedger, spaces: StoredObjects, method: str
) -> None:
    spaces.server.answers(method, SPACES if method == "POST" else f"{SPACES}/perf", failure(403))
    create(cluster, ledger)
    assert ledger.open_resources() == []


def test_a_deletion_waits_until_the_object_is_gone(
    cluster: Cluster, spaces: StoredObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owned_objects, "_FIRST_PAUSE", 0.0)
    obj = spaces.put(SPACES, "perf", labels=owned_objects.labels(OWNER, 60))
    spaces.server.answers("GET", f"{SPACES}/perf", obj, obj, obj, failure(404))
    owned_objects.delete(cluster, NAMESPACE, "perf", OWNER)
    assert (spaces.server.count("GET", f"{SPACES}/perf"), spaces.server.count("DELETE", f"{SPACES}/perf")) == (4, 1)


def test_a_deletion_that_takes_too_long_is_an_error(
    cluster: Cluster, spaces: StoredObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owned_objects, "_DELETE_SECONDS", 0.0)
    obj = spaces.put(SPACES, "perf", labels=owned_objects.labels(OWNER, 60))
    spaces.server.answers("GET", f"{SPACES}/perf", obj)
    with pytest.raises(StepError, match="Namespace perf is still being deleted after 0 s"):
        owned_objects.delete(cluster, NAMESPACE, "perf", OWNER)


def test_another_object_with_the_same_name_is_left_alone(cluster: Cluster, spaces: StoredObjects) -> None:
    mine = spaces.put(SPACES, "perf", labels=owned_objects.labels(OWNER, 60), uid="mine")
    other = spaces.put(SPACES, "perf", labels=owned_objects.labels(OWNER, 60), uid="other")
    spaces.server.answers("GET", f"{SPACES}/perf", mine, other)
    owned_objects.delete(cluster, NAMESPACE, "perf", OWNER)
    assert spaces.objects == {"perf": other}


def test_the_objects_of_all_owners_are_found(cluster: Cluster, server: ApiServer, spaces: StoredObjects) -> None:
    maps = StoredObjects(server, ALL_MAPS)
    spaces.put(SPACES, "perf", labels=owned_objects.labels(OWNER, 3600))
    spaces.put(SPACES, "theirs", labels={"app.kubernetes.io/managed-by": "other", "topgallant.dev/run": "x"})
    maps.put(MAPS, "owner", namespace="lab", labels=owned_objects.labels(OTHER, 60))
    maps.put(MAPS, "owned", labels=owned_objects.labels(OTHER), ownerReferences=[{"uid": "1"}])
    partly = {"app.kubernetes.io/managed-by": "topgallant", "topgallant.dev/run": "run-0"}
    maps.put(MAPS, "without an owner", namespace="lab", labels=partly)
    found = {entry.resource.deletion["name"]: entry for entry in owned_objects.find(cluster)}
    assert sorted(found) == ["owner", "perf"]
    assert (found["perf"].owner, found["owner"].owner) == (OWNER, OTHER)
    assert (
        found["owner"].resource.name == f"http://127.0.0.1:{server.server_port}/api/v1/namespaces/lab/configmaps/owner"
    )
    assert found["owner"].planned == datetime(2026, 1, 1, tzinfo=UTC)
    assert abs(found["perf"].expires - datetime.now(UTC) - timedelta(hours=1)) < timedelta(minutes=1)


def test_an_account_without_permissions_finds_what_is_in_its_namespace(cluster: Cluster, server: ApiServer) -> None:
    maps = StoredObjects(server, MAPS)
    maps.put(MAPS, "owner", namespace="tests", labels=owned_objects.labels(OTHER, 60))
    for path in (ALL_MAPS, SPACES):
        server.answers("GET", path, failure(403))
    assert [entry.resource.deletion["name"] for entry in owned_objects.find(cluster)] == ["owner"]


def test_a_kubeconfig_for_another_cluster_deletes_nothing(cluster: Cluster, server: ApiServer, tmp_path: Path) -> None:
    described = owned_objects.resource(cluster, CONFIG_MAP, "owner")
    (tmp_path / "other").mkdir()
    with api_server.serving(tmp_path / "other") as other:
        server.kubeconfig.write_text(other.kubeconfig.read_text())
        deletion = owned_objects.Deletion.model_validate(described.deletion)
        with pytest.raises(ConfigurationError, match=r"now describes the cluster http://127\.0\.0\.1:\d+, not"):
            deletion.delete_object(CONFIG_MAP, OWNER)
        assert other.requests == []


def test_the_kubeconfig_of_the_environment_is_remembered(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
    with closing(Cluster(Access())) as cluster:
        deletion = owned_objects.resource(cluster, CONFIG_MAP, "owner").deletion
    assert (deletion["kubeconfig"], deletion["context"]) == (str(server.kubeconfig), "it")
