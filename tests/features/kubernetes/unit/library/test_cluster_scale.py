"""Changes of the number of nodes are allowed only within the pool's limits and without harm to other users' pods."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from toolbox.features.kubernetes.library.cluster_scale import Pool, foreign_pods, refusal_reason

NODES = [{"metadata": {"name": name}} for name in ("n1", "n2")]
POOL = Pool("pool", 2, NODES)


def pod(name: str, node: str = "n1", *, owner: str = "", phase: str = "Running", **labels: str) -> dict[str, Any]:
    owners = [{"kind": owner}] if owner else []
    meta = {"namespace": "ns", "name": name, "labels": labels, "ownerReferences": owners}
    return {"metadata": meta, "spec": {"nodeName": node}, "status": {"phase": phase}}


def test_an_allowed_number_of_nodes_is_not_refused() -> None:
    assert refusal_reason(POOL, 4, 4, []) == refusal_reason(POOL, 0, None, []) == ""


@pytest.mark.parametrize(
    ("pool", "replicas", "message"),
    [
        (POOL, -1, "it cannot have -1 nodes"),
        (POOL, 9, "9 nodes are more than the maximum of 8"),
        (dataclasses.replace(POOL, is_autoscaled=True), 2, "it is scaled by an autoscaler"),
        (dataclasses.replace(POOL, zones=3), 4, "4 nodes cannot be spread evenly over its 3 zones"),
    ],
)
def test_a_number_of_nodes_that_is_not_allowed_is_refused(pool: Pool, replicas: int, message: str) -> None:
    assert message in refusal_reason(pool, replicas, 8, [])


def test_nodes_with_pods_of_other_users_are_not_removed() -> None:
    assert "1 of its 2 nodes would be removed, and pods of other users run on them: ns/a on n1; " in refusal_reason(
        POOL, 1, None, [pod("a")]
    )


def test_pods_of_other_users_do_not_matter_if_no_node_is_removed() -> None:
    assert refusal_reason(POOL, 2, None, [pod("a")]) == refusal_reason(POOL, 3, None, [pod("a")]) == ""


def test_only_the_first_pods_are_named() -> None:
    busy = [pod(f"p{number}") for number in range(7)]
    assert "ns/p4 on n1 and 2 more; " in refusal_reason(POOL, 1, None, busy)


def test_pods_of_nodes_ended_pods_and_pods_of_topgallant_allow_removal() -> None:
    ours = {"app.kubernetes.io/managed-by": "topgallant"}
    spared = [
        pod("agent", owner="DaemonSet"),
        pod("mirror", owner="Node"),
        pod("done", phase="Succeeded"),
        pod("elsewhere", "n3"),
        pod("cell", **ours),
    ]
    assert foreign_pods(NODES, [*spared, pod("theirs", owner="ReplicaSet")]) == ["ns/theirs on n1"]
