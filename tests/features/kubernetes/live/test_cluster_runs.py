"""Runs that share a real cluster wait for one another, in whatever way they end."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from tests.features.kubernetes.servers import kubernetes
from tests.functional.grid import wait
from tests.functional.team import Team

pytestmark = pytest.mark.live


@dataclass
class Shared:
    """The cluster that several runs share.

    Args:
        kubeconfig: kubeconfig of an account that can access only one namespace, because other tests change the others.
    """

    cluster: kubernetes.Cluster
    namespace: str
    kubeconfig: Path

    def entry(self, **more: Any) -> dict[str, Any]:
        """Return an entry of the block `clusters` for this cluster."""
        lease = {"ttl": 3, "wait": 60, **more.pop("lease", {})}
        return {"existing": {"kubeconfig": str(self.kubeconfig)}, "lease": lease, **more}

    def lease(self, name: str = "topgallant") -> dict[str, Any]:
        """Return the Lease object of the cluster."""
        from kubernetes import client

        api = client.CustomObjectsApi(self.cluster.api)
        found = api.get_namespaced_custom_object("coordination.k8s.io", "v1", self.namespace, "leases", name)
        return cast("dict[str, Any]", found)


EVERYTHING = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Shared]:
    with (
        kubernetes.for_tests() as cluster,
        cluster.namespace() as namespace,
        cluster.account(namespace, tmp_path, EVERYTHING) as account,
    ):
        content = yaml.safe_load(account.kubeconfig.read_text())
        content["contexts"][0]["context"]["namespace"] = namespace
        account.kubeconfig.write_text(yaml.safe_dump(content))
        yield Shared(cluster, namespace, account.kubeconfig)


@pytest.fixture
def teams(tmp_path: Path) -> tuple[Team, Team]:
    """Return two teams in different directories."""
    return Team.of(tmp_path / "one"), Team.of(tmp_path / "other")


# One cluster, two runs


def test_a_second_run_names_the_holder_and_starts_when_the_first_run_ends(
    shared: Shared, teams: tuple[Team, Team]
) -> None:
    first, second = teams
    first.configure(shared.entry(lease={"purpose": "nightly"})).hold()
    second.configure(shared.entry())
    with first.start() as holder:
        wait(lambda: first.lines == ["begin"], "the start of the first run")
        with second.start() as waiter:
            line = waiter.wait_for("waiting for the lease of sut: held by ")
            assert f"for 'team: nightly' (run {first.workspace.run_directory().name}) since" in line
            assert "it expires 3 s after its last heartbeat (waiting 1 min 0 s at most)" in line
            time.sleep(4)  # longer than a lease lasts without a heartbeat
            assert second.lines == []
            assert "cluster sut: waiting for the lease of sut: held by" in second.status()
            first.let_go()
            assert holder.wait().exit_code == 0
            ended = time.monotonic()
            outcome = waiter.wait()
    assert outcome.exit_code == 0, str(outcome)
    assert second.lines == ["begin", "end", "cleanup"]
    assert time.monotonic() - ended < 10
    assert outcome.stdout.count("waiting for the lease") == 1
    assert "holderIdentity" not in shared.lease()["spec"]


def test_the_lease_of_a_killed_run_expires_and_the_resumed_run_waits(shared: Shared, teams: tuple[Team, Team]) -> None:
    first, second = (team.configure(shared.entry()).hold() for team in teams)
    with first.start() as killed:
        wait(lambda: first.lines == ["begin"], "the start of the first run")
        killed.send(signal.SIGKILL)
        killed.wait()
    with second.start() as holder:
        holder.wait_for("waiting for the lease of sut")
        wait(lambda: second.lines == ["begin"], "the start of the second run after the expiry")
        first.let_go()
        with first.resume() as waiter:
            waiter.wait_for("waiting for the lease of sut: held by ")
            second.let_go()
            assert holder.wait().exit_code == 0
            assert waiter.wait().exit_code == 0
    assert first.lines[-3:] == ["begin", "end", "cleanup"]


def test_a_resumed_run_gets_its_own_lease_back_at_once(shared: Shared, teams: tuple[Team, Team]) -> None:
    team = teams[0].configure(shared.entry(lease={"ttl": 3600})).hold()
    with team.start() as killed:
        wait(lambda: team.lines == ["begin"], "the start of the test phase")
        killed.send(signal.SIGKILL)
        killed.wait()
    team.let_go()
    with team.resume() as running:
        outcome = running.wait(30)
    assert outcome.exit_code == 0, str(outcome)
    assert "waiting" not in outcome.stdout


def test_a_run_whose_lease_is_taken_by_force_ends_without_a_cleanup(shared: Shared, teams: tuple[Team, Team]) -> None:
    team = teams[0].configure(shared.entry()).hold()
    place = [f"--kubeconfig={shared.kubeconfig}", f"--namespace={shared.namespace}"]
    with team.start() as running:
        wait(lambda: team.lines == ["begin"], "the start of the test phase")
        forced = team.workspace.run("cluster", "take_lease", "--purpose=debugging", "--force", *place)
        assert forced.exit_code == 0, str(forced)
        outcome = running.wait(20)
    assert outcome.exit_code == 3, str(outcome)
    assert team.workspace.summary()["cause"] == "infrastructure"
    assert "the lease of sut is lost: now it is held by" in outcome.stdout
    assert "for 'debugging' since" in outcome.stdout
    assert team.lines == ["begin"], "the run cleaned up a cluster that another user holds"
    team.let_go()
    with team.resume() as waiter:
        waiter.wait_for("for 'debugging'")
        assert team.workspace.run("cluster", "release_lease", *place).exit_code == 0
        assert waiter.wait().exit_code == 0
    assert team.lines[-3:] == ["begin", "end", "cleanup"]


def test_a_run_that_does_not_get_the_lease_in_time_ends_with_cause_capacity(
    shared: Shared, teams: tuple[Team, Team]
) -> None:
    first, second = teams
    first.configure(shared.entry()).hold()
    second.configure(shared.entry(lease={"wait": 1}))
    with first.start():
        wait(lambda: first.lines == ["begin"], "the start of the first run")
        outcome = second.run()
    assert (outcome.exit_code, second.workspace.summary()["cause"]) == (3, "capacity")
    assert "the lease of sut did not become free within 1 s: held by" in outcome.stdout
    assert second.lines == []


def test_a_waiting_run_is_interrupted_at_once(shared: Shared, teams: tuple[Team, Team]) -> None:
    first, second = (team.configure(shared.entry()) for team in teams)
    first.hold()
    with first.start() as holder:
        wait(lambda: first.lines == ["begin"], "the start of the first run")
        with second.start() as waiter:
            waiter.wait_for("waiting for the lease of sut")
            waiter.send(signal.SIGINT)
            assert waiter.wait(20).exit_code == 130  # without the interruption, it would wait for 60 s
        assert shared.lease()["spec"]["holderIdentity"] == first.workspace.run_directory().name
        first.let_go()
        assert holder.wait().exit_code == 0
    assert second.lines == []


def test_a_run_without_a_kubeconfig_starts_nothing(teams: tuple[Team, Team], tmp_path: Path) -> None:
    team = teams[0].configure({"existing": {"kubeconfig": str(tmp_path / "none")}})
    outcome = team.run()
    assert outcome.exit_code == 2
    assert f"there is no kubeconfig {tmp_path / 'none'}" in outcome.stderr
    assert team.workspace.runs() == []


def test_two_names_of_one_cluster_share_one_lease(shared: Shared, teams: tuple[Team, Team]) -> None:
    team = teams[0].configure(shared.entry(), clusters={"driver": shared.entry()})
    outcome = team.run()
    assert outcome.exit_code == 0, str(outcome)
    assert "waiting" not in outcome.stdout


# A pool


@pytest.fixture
def pool(shared: Shared, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Yield a pool of two members: two namespaces of the cluster, in two contexts of one kubeconfig."""
    cluster = shared.cluster
    with cluster.namespace() as namespace, cluster.account(namespace, tmp_path, EVERYTHING) as account:
        one, other = (yaml.safe_load(file.read_text()) for file in (shared.kubeconfig, account.kubeconfig))
        merged = {**one, "users": [], "contexts": []}
        for name, content, place in (("a", one, shared.namespace), ("b", other, namespace)):
            merged["users"].append({**content["users"][0], "name": name})
            context = {**content["contexts"][0]["context"], "user": name, "namespace": place}
            merged["contexts"].append({"name": name, "context": context})
        file = tmp_path / "pool"
        file.write_text(yaml.safe_dump({**merged, "current-context": "a"}))
        members = [{"name": name, "kubeconfig": str(file), "context": name} for name in ("a", "b")]
        yield {"pool": members, "lease": {"ttl": 3, "wait": 60}}


def test_a_run_takes_any_free_cluster_of_a_pool_and_waits_for_all(
    pool: dict[str, Any], teams: tuple[Team, Team], tmp_path: Path
) -> None:
    first, second = (team.configure(pool).hold() for team in teams)
    third = Team.of(tmp_path / "third").configure(pool)
    with first.start() as one, second.start() as other:
        wait(lambda: first.lines == second.lines == ["begin"], "the start of two runs")
        has_a = ["cluster sut: a of its pool" in team.status() for team in (first, second)]
        has_b = ["cluster sut: b of its pool" in team.status() for team in (first, second)]
        assert sorted(has_a) == sorted(has_b) == [False, True]
        with third.start() as waiter:
            for name in ("a", "b"):
                waiter.wait_for(f"waiting for the lease of {name} (of the pool sut): held by")
            second.let_go()
            assert other.wait().exit_code == 0
            assert waiter.wait().exit_code == 0
        first.let_go()
        assert one.wait().exit_code == 0


def test_a_resumed_run_gets_the_same_cluster_of_the_pool(pool: dict[str, Any], teams: tuple[Team, Team]) -> None:
    first, second = teams
    first.configure(pool).hold()
    second.configure(pool).hold()
    with first.start() as one:
        wait(lambda: first.lines == ["begin"], "the start of the first run")
        with second.start() as killed:
            wait(lambda: second.lines == ["begin"], "the start of the second run")
            killed.send(signal.SIGKILL)
            killed.wait()
        first.let_go()
        assert one.wait().exit_code == 0
    second.let_go()
    with second.resume() as running:
        outcome = running.wait()
    assert outcome.exit_code == 0, str(outcome)
    assert "cluster sut: b of its pool" in outcome.stdout


# Clusters that a command creates


CREATE = """
    echo "create $TOPGALLANT_CLUSTER" >>lines
    while [ -e hold-create ]; do sleep 0.02; done
    cp there.kubeconfig "$KUBECONFIG"
    ls "$ARTIFACT_DIR"/run.log
    if [ -e fail-create ]; then echo no quota is left >&2; exit 7; fi
"""
DESTROY = 'echo "destroy $TOPGALLANT_CLUSTER" >>lines'


@dataclass
class Maker:
    """A team whose runs each create a cluster."""

    team: Team

    @property
    def name(self) -> str:
        """Name of the cluster of the only run."""
        return f"sut-{self.team.workspace.run_directory().name}"

    @property
    def lines(self) -> list[str]:
        """Lines that the phases and the commands for the cluster have written."""
        file = self.team.workspace.directory / "lines"
        return file.read_text().splitlines() if file.exists() else []

    @property
    def kubeconfigs(self) -> list[Path]:
        """Saved kubeconfigs of the clusters that exist."""
        return sorted(self.team.workspace.home.glob(".local/state/topgallant/clusters/*/kubeconfig"))


@pytest.fixture
def maker(teams: tuple[Team, Team]) -> Maker:
    team = teams[0].configure({"create": {"command": CREATE, "destroy": DESTROY}})
    content = {"name": "x", "cluster": {"server": "https://127.0.0.1:1"}}
    user = {"name": "x", "user": {"token": "very-secret-token"}}
    context = {"name": "x", "context": {"cluster": "x", "user": "x"}}
    kubeconfig = {"clusters": [content], "users": [user], "contexts": [context], "current-context": "x"}
    team.workspace.write({"there.kubeconfig": yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **kubeconfig})})
    return Maker(team)


def test_a_cluster_is_made_for_a_run_and_removed_after_it(maker: Maker) -> None:
    maker.team.configure(
        {"create": {"command": CREATE, "destroy": DESTROY}}, prepare=["cat $KUBECONFIG", "stat -c %a $KUBECONFIG"]
    )
    outcome = maker.team.run()
    assert outcome.exit_code == 0, str(outcome)
    assert maker.lines == [f"create {maker.name}", "begin", "end", "cleanup", f"destroy {maker.name}"]
    assert "token: ***" in outcome.stdout
    assert "  600" in outcome.stdout
    assert maker.team.workspace.holding("very-secret-token") == []
    assert maker.kubeconfigs == []


def test_a_cluster_with_keep_stays_and_the_run_prints_its_kubeconfig(maker: Maker) -> None:
    maker.team.configure({"create": {"command": CREATE, "destroy": DESTROY, "keep": True}})
    outcome = maker.team.run()
    assert outcome.exit_code == 0, str(outcome)
    (kubeconfig,) = maker.kubeconfigs
    reach = f"cluster sut: kubeconfig {kubeconfig}"
    removal = f"remote resource: cluster {maker.name} (kept); to delete it: env KUBECONFIG={kubeconfig} "
    for text in (outcome.stdout, maker.team.status()):
        assert reach in text
        assert removal in text
    assert not any(line.startswith("destroy") for line in maker.lines)


@pytest.mark.parametrize("keep", [False, True])
def test_a_partly_created_cluster_is_removed(maker: Maker, keep: bool) -> None:
    maker.team.configure({"create": {"command": CREATE, "destroy": DESTROY, "keep": keep}})
    (maker.team.workspace.directory / "fail-create").touch()
    outcome = maker.team.run()
    assert outcome.exit_code == 3, str(outcome)
    assert "no quota is left" in maker.team.workspace.summary()["message"]
    assert maker.lines == [f"create {maker.name}", f"destroy {maker.name}"]
    assert maker.kubeconfigs == []


def test_a_cluster_that_cannot_be_removed_is_an_error_and_stays_listed(maker: Maker) -> None:
    maker.team.configure({"create": {"command": CREATE, "destroy": ["false"]}})
    outcome = maker.team.run()
    assert outcome.exit_code == 3, str(outcome)
    assert f"cluster {maker.name} (could not be deleted: `false` ended with status 1); to delete it: " in outcome.stdout


def test_a_cluster_whose_creation_was_killed_is_removed_and_created_again(maker: Maker) -> None:
    gate = maker.team.workspace.directory / "hold-create"
    gate.touch()
    with maker.team.start() as killed:
        wait(lambda: len(maker.lines) == 1, "the command that creates the cluster")
        killed.send(signal.SIGKILL)
        killed.wait()
    gate.unlink()
    with maker.team.resume() as running:
        outcome = running.wait()
    assert outcome.exit_code == 0, str(outcome)
    name = maker.name
    assert maker.lines == [
        f"create {name}", f"destroy {name}", f"create {name}", "begin", "end", "cleanup", f"destroy {name}",
    ]  # fmt: skip


def test_a_run_killed_after_the_creation_keeps_its_cluster(maker: Maker) -> None:
    daemon = "sleep 600 </dev/null >/dev/null 2>&1 & echo $! >daemon"
    maker.team.configure({"create": {"command": f"{CREATE}\n{daemon}", "destroy": f"{DESTROY}; kill $(cat daemon)"}})
    maker.team.hold()
    with maker.team.start() as killed:
        wait(lambda: "begin" in maker.lines, "the start of the test phase")
        killed.send(signal.SIGKILL)
        killed.wait()
    maker.team.let_go()
    with maker.team.resume() as running:
        outcome = running.wait()
    assert outcome.exit_code == 0, str(outcome)
    assert [line for line in maker.lines if line.split()[0] in ("create", "destroy")] == [
        f"create {maker.name}", f"destroy {maker.name}",
    ]  # fmt: skip
    assert "kill:" not in outcome.stdout, "the process in the cluster ended before the cluster was removed"


def test_an_interrupted_run_removes_its_cluster(maker: Maker) -> None:
    maker.team.hold()
    with maker.team.start() as running:
        wait(lambda: "begin" in maker.lines, "the start of the test phase")
        running.send(signal.SIGINT)
        assert running.wait().exit_code == 130
    assert maker.lines[-1] == f"destroy {maker.name}"


# Comparison of the cluster before and after a run


def test_a_run_that_leaves_objects_in_the_cluster_fails_and_names_them(
    shared: Shared, teams: tuple[Team, Team]
) -> None:
    secret = "kubectl create secret generic door --from-literal=key=open-sesame"
    team = teams[0].configure(shared.entry(compare=True), prepare=["kubectl create configmap left", secret])
    outcome = team.run()
    assert outcome.exit_code == 1, str(outcome)
    assert team.workspace.summary()["cause"] == "check"
    message = team.workspace.summary()["message"]
    assert "the cluster sut has changed since the run began:" in message
    assert f"added: ConfigMap/{shared.namespace}/left" in message
    assert f"added: Secret/{shared.namespace}/door" in message
    assert len(list(team.workspace.run_directory().glob("*__release_clusters/sut-*.yaml"))) == 2
    leaks = team.workspace.holding("open-sesame") + team.workspace.holding("b3Blbi1zZXNhbWU=")
    assert {file.name for file in leaks} <= {"config.yaml", "run.log", "report.html", "journal.jsonl"}, (
        "the secret is in a file that does not show the command"
    )


def test_a_run_that_deletes_its_objects_passes(shared: Shared, teams: tuple[Team, Team]) -> None:
    team = teams[0].configure(
        shared.entry(compare=True),
        prepare=["kubectl create configmap left", "kubectl create deployment d --image=busybox:local --replicas=0"],
        cleanup=["kubectl delete configmap left", "kubectl delete deployment d --wait=false"],
    )
    outcome = team.run()
    assert outcome.exit_code == 0, str(outcome)


def test_a_changed_secret_is_reported_without_its_value(shared: Shared, teams: tuple[Team, Team]) -> None:
    shared.cluster.core.create_namespaced_secret(
        shared.namespace, {"metadata": {"name": "door"}, "stringData": {"key": "sesame-1"}}
    )
    patch = """kubectl get secret door -o yaml | sed s/c2VzYW1lLTE=/c2VzYW1lLTI=/ | kubectl replace -f -"""
    team = teams[0].configure(shared.entry(compare=True), prepare=[patch])
    outcome = team.run()
    assert outcome.exit_code == 1, str(outcome)
    assert f"changed: Secret/{shared.namespace}/door" in team.workspace.summary()["message"]
    for value in ("sesame-1", "c2VzYW1lLTE"):
        found = team.workspace.holding(value)
        assert [file.name for file in found if "clusters" in str(file.parent)] == []
