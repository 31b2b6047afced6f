"""The summary of a cluster describes its nodes and its operators."""

from __future__ import annotations

from typing import Any

from toolbox.features.kubernetes.library import cluster_logs, cluster_ready, cluster_state


def node(**status: Any) -> dict[str, Any]:
    labels = {
        "cloud.google.com/gke-tpu-topology": "2x4",
        "feature.node.kubernetes.io/pci-10de.present": "true",
        "feature.node.kubernetes.io/cpu-cpuid.AVX": "true",
        "somebody": "else",
    }
    meta = {"name": "n1", "labels": labels}
    taints = [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]
    return {"kind": "Node", "metadata": meta, "spec": {"taints": taints}, "status": status}


READY = [{"type": "Ready", "status": "True"}]


def test_accelerators_of_every_vendor_and_slices_are_counted() -> None:
    counts = {
        "cpu": "4",
        "nvidia.com/gpu": "1",
        "nvidia.com/mig-1g.10gb": "7",
        "amd.com/gpu": "8",
        "google.com/tpu": "4",
    }
    found = cluster_state.node_summary(node(capacity=counts, allocatable={**counts, "amd.com/gpu": "6"}))
    assert list(found["accelerators"]) == ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "amd.com/gpu", "google.com/tpu"]
    assert found["accelerators"]["amd.com/gpu"] == {"capacity": "8", "allocatable": "6"}


def test_only_labels_that_matter_are_kept() -> None:
    found = cluster_state.node_summary(node())
    assert list(found["labels"]) == ["cloud.google.com/gke-tpu-topology", "feature.node.kubernetes.io/pci-10de.present"]
    assert found["taints"] == ["nvidia.com/gpu=:NoSchedule"]


def test_operators_are_listed_with_their_state() -> None:
    version = {"metadata": {"name": "gpu.v24"}, "spec": {"version": "24.9"}, "status": {"phase": "Succeeded"}}
    policy = {"metadata": {"name": "gpu"}, "status": {"state": "ready"}}
    assert cluster_state.operators({"ClusterPolicy": [policy]}, {"ClusterServiceVersion": [version]}) == [
        {"name": "ClusterPolicy gpu", "version": None, "state": "ready"},
        {"name": "gpu.v24", "version": "24.9", "state": "Succeeded"},
    ]


def test_a_ready_node_with_the_taint_unreachable_has_a_fault() -> None:
    taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
    assert cluster_ready.node_fault(node(conditions=READY)) is None
    lost = {**node(conditions=READY), "spec": {"taints": [taint]}}
    assert cluster_ready.node_fault(lost) == "it has the taint node.kubernetes.io/unreachable"


def test_the_fault_of_a_node_that_is_not_ready_has_its_reason() -> None:
    unknown = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped"}
    found = node(conditions=[unknown])
    assert cluster_ready.node_fault(found) == "it is not ready: NodeStatusUnknown: Kubelet stopped"
    assert cluster_ready.node_faults([found], 1)[0] == "0 of 1 required nodes are ready, 1 exist"


def test_an_age_with_a_unit_is_converted_to_seconds() -> None:
    found = {age: cluster_logs.seconds(age) for age in ("30s", "10m", "2h", "1d", "7200.0", "0s", "")}
    assert found == {"30s": 30, "10m": 600, "2h": 7200, "1d": 86400, "7200.0": 7200, "0s": 1, "": None}
