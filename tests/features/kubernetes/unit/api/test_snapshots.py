"""Two snapshots of a cluster are compared; `tests/features/kubernetes/live/test_leases.py` uses a real cluster."""

from typing import Any

import pytest

from toolbox.features.kubernetes.api import snapshots
from toolbox.features.kubernetes.api.snapshots import Difference, Snapshot


def digest(kind: str = "ConfigMap", key: bytes = b"k", **fields: Any) -> str:
    metadata = {"name": "x", "resourceVersion": "1", "managedFields": [{}], "annotations": {"a": "b"}}
    return snapshots._digest(kind, {"metadata": {**metadata, **fields.pop("metadata", {})}, **fields}, key)


@pytest.mark.parametrize(
    "fields",
    [
        {"metadata": {"resourceVersion": "2"}},
        {"metadata": {"managedFields": []}},
        {"metadata": {"uid": "another"}},
        {"status": {"phase": "Bound"}},
    ],
)
def test_changes_by_kubernetes_are_not_differences(fields: dict[str, Any]) -> None:
    assert digest(data={"a": "1"}, **fields) == digest(data={"a": "1"})


@pytest.mark.parametrize("fields", [{"data": {"a": "2"}}, {"metadata": {"labels": {"x": "y"}}}, {"rules": []}])
def test_a_change_by_a_user_is_a_difference(fields: dict[str, Any]) -> None:
    assert digest(**{"data": {"a": "1"}, **fields}) != digest(data={"a": "1"})


def test_labels_and_taints_of_a_node_are_compared_and_heartbeats_are_not() -> None:
    def node(**fields: Any) -> str:
        return digest("Node", **{"spec": {"podCIDR": "10.0.0.0/24"}, **fields})

    ready = {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}
    ours = {"key": "only-gpu", "effect": "NoSchedule"}
    assert node() == node(spec={"taints": [ready]}) == node(status={"conditions": [{}]})
    assert len({node(), node(spec={"taints": [ours]}), node(metadata={"labels": {"a": "b"}})}) == 3
    assert node(spec={"unschedulable": True}) != node()


def test_generated_tokens_are_not_compared() -> None:
    assert digest("ServiceAccount", secrets=[{"name": "x-token-1"}]) == digest("ServiceAccount")


def test_a_digest_depends_on_the_key() -> None:
    assert digest("Secret", b"one", data={"a": "1"}) != digest("Secret", b"other", data={"a": "1"})


def test_a_difference_names_the_object_and_the_kind_of_change() -> None:
    before = Snapshot({"ConfigMap/a/kept": "1", "ConfigMap/a/gone": "1", "Node/n": "1"})
    after = Snapshot({"ConfigMap/a/kept": "1", "Node/n": "2", "Job.batch/a/new": "1"})
    text = "added: Job.batch/a/new\nremoved: ConfigMap/a/gone\nchanged: Node/n"
    assert str(Difference.between(before, after)) == text
    assert not Difference.between(before, before)


def test_many_differences_are_abbreviated() -> None:
    after = Snapshot({f"ConfigMap/a/{number:02}": "1" for number in range(13)})
    lines = str(Difference.between(Snapshot({}), after)).splitlines()
    assert (lines[0], lines[-1], len(lines)) == ("added: ConfigMap/a/00", "and 3 more", 11)


def test_kinds_that_one_snapshot_could_not_list_are_not_compared() -> None:
    seen = Snapshot({"Secret/a/x": "1", "ConfigMap/a/x": "1"})
    unseen = Snapshot({"ConfigMap/a/x": "1"}, unseen=("Secret",))
    assert not Difference.between(seen, unseen)
    assert not Difference.between(unseen, seen)


def test_a_snapshot_survives_json() -> None:
    snapshot = Snapshot({"Secret/a/x": "1"}, unseen=("Node",))
    assert Snapshot.of_json(snapshot.as_json()) == snapshot
