"""The lease of a real cluster, and its commands, by the real command line."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from tests.conformance.sites import wait_for
from tests.features.kubernetes.servers import api_proxy, kubernetes
from toolbox.features.kubernetes.api.connection import ApiError, Cluster
from toolbox.features.kubernetes.api.snapshots import Difference, Snapshot
from toolbox.features.kubernetes.lease_objects import LeaseObject
from toolbox.ground.model.clusters import Access
from toolbox.ground.model.errors import ConfigurationError, StepError
from toolbox.ground.model.verdicts import Cause
from toolbox.records.leases.leases import Claim, Record, StoredRecord, current_user, now
from toolbox.records.leases.taking import take
from toolbox.testing import Outcome, Workspace

pytestmark = pytest.mark.live

NIGHTLY = Claim("run-1", "ann@lab", "nightly", "run-1", ttl=3)
OURS = Claim("run-2", "bob@lab", "mine", "run-2", ttl=3)
LEASES = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}


@dataclass
class Place:
    """A namespace of a real cluster.

    Args:
        kubeconfig: kubeconfig of an administrator.
    """

    server: kubernetes.Cluster
    namespace: str
    kubeconfig: Path
    directory: Path

    def lock(self, kubeconfig: Path | None = None, name: str = "topgallant") -> LeaseObject:
        """Return a new client of the lease."""
        access = Access(str(kubeconfig or self.kubeconfig), None, self.namespace)
        return LeaseObject(Cluster(access, label="sut"), name)

    def found(self) -> dict[str, Any]:
        """Return the Lease object of the cluster."""
        return cast("dict[str, Any]", self._leases.get_namespaced_custom_object(*self._path, "topgallant"))

    def delete(self) -> None:
        """Delete the Lease object."""
        self._leases.delete_namespaced_custom_object(*self._path, "topgallant")

    @property
    def _leases(self) -> Any:
        from kubernetes import client

        return client.CustomObjectsApi(self.server.api)

    @property
    def _path(self) -> tuple[str, str, str, str]:
        return "coordination.k8s.io", "v1", self.namespace, "leases"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with kubernetes.for_tests() as cluster, cluster.namespace() as namespace:
        yield Place(cluster, namespace, cluster.kubeconfig, tmp_path)


# The Lease object


def test_a_held_lease_is_a_lease_object_with_readable_annotations(place: Place) -> None:
    take([place.lock()], NIGHTLY, wait=0, report=print)
    found = place.found()
    assert (found["spec"]["holderIdentity"], found["spec"]["leaseDurationSeconds"]) == ("run-1", 3)
    notes = {"owner": "ann@lab", "purpose": "nightly", "run": "run-1"}
    assert found["metadata"]["annotations"] == {f"topgallant.dev/{name}": text for name, text in notes.items()}


def test_a_written_record_is_read_back_unchanged(place: Place) -> None:
    version = ""
    for microsecond in (0, 1, 999999):
        moment = now().replace(microsecond=microsecond)
        written = Record(NIGHTLY, moment, moment, "by bob")
        version = place.lock().write(written, version, 5) or ""
        assert place.lock().read(5) == StoredRecord(written, version)


def test_a_write_with_an_old_version_is_refused(place: Place) -> None:
    one, other = place.lock(), place.lock()
    version = one.write(Record(NIGHTLY, now(), now()), "", 5)
    assert version
    assert other.write(Record(OURS, now(), now()), "", 5) is None
    assert one.write(Record(NIGHTLY, now(), now()), version, 5)
    assert other.write(Record(OURS, now(), now()), version, 5) is None


def test_a_write_after_a_deletion_is_refused(place: Place) -> None:
    version = place.lock().write(Record(NIGHTLY, now(), now()), "", 5)
    assert version
    place.delete()
    assert place.lock().write(Record(NIGHTLY, now(), now()), version, 5) is None
    assert place.lock().read(5) == StoredRecord(None, "")


def test_annotations_of_other_tools_stay(place: Place) -> None:
    lease = take([place.lock()], NIGHTLY, wait=0, report=print)
    place._leases.patch_namespaced_custom_object(
        *place._path,
        "topgallant",
        {"metadata": {"annotations": {"team": "blue"}}},
        _content_type="application/merge-patch+json",
    )
    lease.release()
    assert place.found()["metadata"]["annotations"] == {"team": "blue"}


def test_a_lease_of_another_tool_is_respected(place: Place) -> None:
    body = {"metadata": {"name": "topgallant"}, "spec": {"holderIdentity": "other-tool", "leaseDurationSeconds": 60}}
    place._leases.create_namespaced_custom_object(*place._path, body)
    with pytest.raises(StepError, match="held by other-tool for ''"):
        take([place.lock()], OURS, wait=0, report=print)


def test_a_missing_namespace_is_named(place: Place) -> None:
    lock = LeaseObject(Cluster(Access(str(place.kubeconfig)), label="sut"), namespace="nowhere")
    with pytest.raises(
        ConfigurationError, match="sut: there is no namespace nowhere for its lease: create it, or name"
    ):
        take([lock], OURS, wait=0, report=print)


def test_an_account_that_may_not_use_leases_is_reported(place: Place) -> None:
    with (
        place.server.account(place.namespace, place.directory, []) as account,
        pytest.raises(ApiError, match=r"sut: leases\.coordination\.k8s\.io .* is forbidden") as caught,
    ):
        take([place.lock(account.kubeconfig)], OURS, wait=0, report=print)
    assert caught.value.cause is Cause.CONFIGURATION


# Time


def test_a_waiting_client_notices_a_release_at_once(place: Place) -> None:
    held = take([place.lock()], dataclasses.replace(NIGHTLY, ttl=60), wait=0, report=print)
    held.start(lambda: None)
    threading.Timer(2, held.release).start()
    began = time.monotonic()
    take([place.lock()], OURS, wait=30, report=print)
    assert 1.9 < time.monotonic() - began < 20


def test_a_dead_holder_keeps_the_lease_only_until_it_expires(place: Place) -> None:
    take([place.lock()], NIGHTLY, wait=0, report=print)
    began = time.monotonic()
    take([place.lock()], OURS, wait=30, report=print)
    assert 2.9 < time.monotonic() - began < 20


def test_a_client_that_may_not_watch_can_still_take_the_lease(place: Place) -> None:
    with place.server.account(
        place.namespace, place.directory, [{**LEASES, "verbs": ["get", "create", "patch"]}]
    ) as account:
        take([place.lock()], NIGHTLY, wait=0, report=print)
        take([place.lock(account.kubeconfig)], OURS, wait=30, report=print)
    assert place.found()["spec"]["holderIdentity"] == "run-2"


def test_the_holder_writes_a_deleted_lease_again(place: Place) -> None:
    lost = threading.Event()
    lease = take([place.lock()], NIGHTLY, wait=0, report=print)
    lease.start(lost.set)
    place.delete()
    reader = place.lock()
    wait_for(lambda: reader.read(5).record, "the lease")
    assert place.found()["spec"]["holderIdentity"] == "run-1"
    assert not lost.is_set()
    lease.release()


def test_a_lease_taken_by_force_is_lost_and_recorded(place: Place) -> None:
    lost = threading.Event()
    lease = take([place.lock()], NIGHTLY, wait=0, report=print)
    lease.start(lost.set)
    take([place.lock()], OURS, wait=0, report=print, force=True)
    assert lost.wait(30)
    assert lease.loss.startswith("the lease of sut is lost: now it is held by bob@lab for 'mine' (run run-2) since ")
    assert place.found()["metadata"]["annotations"]["topgallant.dev/forced"].startswith("by bob@lab at ")


@pytest.fixture
def proxy(place: Place) -> Iterator[api_proxy.Proxy]:
    """Yield a proxy between the holder and the cluster."""
    with api_proxy.Proxy(place.kubeconfig, place.directory) as running:
        yield running


def test_a_short_outage_of_the_server_does_not_lose_the_lease(place: Place, proxy: api_proxy.Proxy) -> None:
    lost = threading.Event()
    lease = take([place.lock(proxy.kubeconfig)], dataclasses.replace(NIGHTLY, ttl=9), wait=0, report=print)
    lease.start(lost.set)
    proxy.stop()
    time.sleep(4)
    proxy.start()
    began = now()
    wait_for(lambda: (record := place.lock().read(5).record) and record.renewed > began, "a renewal")
    assert not lost.is_set()
    lease.release()


@pytest.mark.parametrize("fault", ["stop", "stall"])
def test_a_holder_that_cannot_renew_notices_before_another_takes_the_lease(
    place: Place, proxy: api_proxy.Proxy, fault: str
) -> None:
    lost: list[float] = []
    lease = take([place.lock(proxy.kubeconfig)], dataclasses.replace(NIGHTLY, ttl=6), wait=0, report=print)
    lease.start(lambda: lost.append(time.monotonic()))
    getattr(proxy, fault)()
    other = take([place.lock()], OURS, wait=30, report=print)
    taken = time.monotonic()
    assert lost[0] < taken
    assert "it could not be renewed for 5 s: sut: the API server does not answer" in lease.loss
    proxy.resume()
    lease.release()
    assert place.found()["spec"]["holderIdentity"] == other.record.claim.holder


def test_a_waiting_client_notices_a_release_after_dropped_connections(place: Place, proxy: api_proxy.Proxy) -> None:
    held = take([place.lock()], dataclasses.replace(NIGHTLY, ttl=60), wait=0, report=print)
    threading.Timer(1, proxy.drop).start()
    threading.Timer(2, held.release).start()
    began = time.monotonic()
    take([place.lock(proxy.kubeconfig)], OURS, wait=50, report=print)
    assert 1.9 < time.monotonic() - began < 15


# The commands


@pytest.fixture
def workspace(place: Place, tmp_path: Path) -> Workspace:
    """Return a workspace whose kubeconfig context names the namespace, as in a user's kubeconfig."""
    content = yaml.safe_load(place.kubeconfig.read_text())
    content["contexts"][0]["context"]["namespace"] = place.namespace
    found = Workspace(tmp_path / "workspace")
    found.write({"kubeconfig": yaml.safe_dump(content)})
    return found


def run(workspace: Workspace, command: str, *flags: str) -> Outcome:
    return workspace.run("cluster", command, *flags, "--kubeconfig=kubeconfig")


def test_a_user_takes_shows_and_releases_a_lease(place: Place, workspace: Workspace) -> None:
    taken = run(workspace, "take_lease", "--purpose=debugging", "--ttl=7200")
    assert taken.exit_code == 0, str(taken)
    assert taken.stdout.startswith(f"you hold topgallant in the namespace {place.namespace}, and it ends at ")
    shown = run(workspace, "show_lease").stdout
    assert f"is held by {current_user()} for 'debugging' since " in shown
    holder = run(workspace, "show_lease", "--format=json").json["holder"]
    assert (holder["owner"], holder["ttl"], holder["has_heartbeat"]) == (current_user(), 7200, False)
    assert run(workspace, "release_lease").stdout == f"topgallant in the namespace {place.namespace} is free\n"
    assert run(workspace, "show_lease", "--format=json").json["holder"] is None
    assert run(workspace, "release_lease").stdout.endswith(" is not held\n")


def test_a_lease_of_another_holder_is_neither_taken_nor_released(place: Place, workspace: Workspace) -> None:
    take([place.lock()], Claim("run-1", "ann@lab", "nightly", "run-1", ttl=60), wait=0, report=print)
    for command, flags in (("take_lease", ["--purpose=x"]), ("release_lease", [])):
        outcome = run(workspace, command, *flags)
        assert outcome.exit_code == 3
        assert "held by ann@lab for 'nightly' (run run-1) since " in outcome.stderr
        assert "--force to take the lease away" in outcome.stderr
    assert place.found()["spec"]["holderIdentity"] == "run-1"


def test_a_forced_release_is_noticed_by_the_holder_and_recorded(place: Place, workspace: Workspace) -> None:
    lost = threading.Event()
    lease = take([place.lock()], NIGHTLY, wait=0, report=print)
    lease.start(lost.set)
    assert run(workspace, "release_lease", "--force").exit_code == 0
    assert lost.wait(30)
    assert "holderIdentity" not in place.found()["spec"]
    assert f"by {current_user()} at " in place.found()["metadata"]["annotations"]["topgallant.dev/forced"]


def test_a_user_can_wait_for_a_lease(place: Place, workspace: Workspace) -> None:
    take([place.lock()], NIGHTLY, wait=0, report=print)
    outcome = run(workspace, "take_lease", "--purpose=debugging", "--wait=30")
    assert outcome.exit_code == 0, str(outcome)
    assert "waiting for the lease of the cluster: held by ann@lab" in outcome.stderr


# Snapshots


def test_two_snapshots_differ_in_the_objects_created_between_them(place: Place) -> None:
    everything = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    with place.server.account(place.namespace, place.directory, everything) as account:
        cluster = Cluster(Access(str(account.kubeconfig), None, place.namespace))
        before = Snapshot.take(cluster, b"k")
        core, batch = place.server.core, place.server.batch
        core.create_namespaced_config_map(place.namespace, {"metadata": {"name": "left"}, "data": {"a": "b"}})
        pod = {"containers": [{"name": "c", "image": "busybox:local", "command": ["true"], "imagePullPolicy": "Never"}]}
        job = {"template": {"spec": {**pod, "restartPolicy": "Never"}}}
        batch.create_namespaced_job(place.namespace, {"metadata": {"name": "job"}, "spec": job})
        time.sleep(1)
        after = Snapshot.take(cluster, b"k")
    there = f"{place.namespace}"
    assert Difference.between(before, after).added == (f"ConfigMap/{there}/left", f"Job.batch/{there}/job")
    assert f"ConfigMap outside of {there}" in after.unseen
    assert "Node" in after.unseen


def test_a_snapshot_can_cover_a_whole_cluster(place: Place) -> None:
    snapshot = Snapshot.take(Cluster(Access(str(place.kubeconfig))), b"k")
    assert f"Namespace/{place.namespace}" in snapshot.digests
    assert any(name.startswith("Node/") for name in snapshot.digests)
    assert any(name.startswith("ClusterRole.rbac.authorization.k8s.io/") for name in snapshot.digests)
    assert not any(name.startswith(("Event", "Lease", "Endpoint")) for name in snapshot.digests)
    assert json.loads(json.dumps(snapshot.as_json()))["unseen"] == []
