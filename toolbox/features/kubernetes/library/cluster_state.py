"""Ansible module: record the state of a cluster and of its objects.

    - name: Record the state
      cluster_state:
        namespaces: [tests]
        directory: "{{ artifact_extra_logs_dir }}/artifacts"

The module has these options, and `kubeconfig`, `context` and `namespace`:

- `namespaces`: the namespaces whose objects to record; by default all namespaces that the account may read.
- `logs`: record also the logs of the containers.
- `directory`: the directory for `summary.json`, a YAML file per kind of objects (such as `pods.yaml`), and `logs/`.

For each kind that the account may not list, `summary.json` has a note. Secrets are recorded without their values. The
module returns the `summary`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ansible.module_utils.basic import AnsibleModule

from toolbox.features.kubernetes.api.connection import ApiError, Json
from toolbox.features.kubernetes.api.objects import POD, Kind, Objects, Query
from toolbox.features.kubernetes.library import _entry, _evidence, _logs
from toolbox.features.kubernetes.library.cluster_ready import node_fault
from toolbox.ground.model.errors import ConfigurationError
from toolbox.ground.system import filesystem

_OPTIONS: Final = {
    "namespaces": {"type": "list", "elements": "str"},
    "logs": {"type": "bool", "default": False},
    "directory": {"type": "path", "required": True},
}
# The file, API version and kind of the recorded objects. Kinds that the cluster does not have are skipped.
_CLUSTER_KINDS: Final = (
    ("nodes", "v1", "Node"),
    ("namespaces", "v1", "Namespace"),
    ("persistent_volumes", "v1", "PersistentVolume"),
    ("storage_classes", "storage.k8s.io/v1", "StorageClass"),
    ("priority_classes", "scheduling.k8s.io/v1", "PriorityClass"),
    ("nvidia_cluster_policies", "nvidia.com/v1", "ClusterPolicy"),
    ("amd_device_configs", "amd.com/v1alpha1", "DeviceConfig"),
    ("node_feature_discoveries", "nfd.openshift.io/v1", "NodeFeatureDiscovery"),
    ("kueue_cluster_queues", "kueue.x-k8s.io/v1beta1", "ClusterQueue"),
    ("kueue_resource_flavors", "kueue.x-k8s.io/v1beta1", "ResourceFlavor"),
    ("openshift_version", "config.openshift.io/v1", "ClusterVersion"),
)
_NAMESPACED_KINDS: Final = (
    ("pods", "v1", "Pod"),
    ("events", "v1", "Event"),
    ("services", "v1", "Service"),
    ("secrets", "v1", "Secret"),
    ("resource_quotas", "v1", "ResourceQuota"),
    ("limit_ranges", "v1", "LimitRange"),
    ("persistent_volume_claims", "v1", "PersistentVolumeClaim"),
    ("jobs", "batch/v1", "Job"),
    ("deployments", "apps/v1", "Deployment"),
    ("daemon_sets", "apps/v1", "DaemonSet"),
    ("stateful_sets", "apps/v1", "StatefulSet"),
    ("leases", "coordination.k8s.io/v1", "Lease"),
    ("job_sets", "jobset.x-k8s.io/v1alpha2", "JobSet"),
    ("kueue_local_queues", "kueue.x-k8s.io/v1beta1", "LocalQueue"),
    ("kueue_workloads", "kueue.x-k8s.io/v1beta1", "Workload"),
    ("operators", "operators.coreos.com/v1alpha1", "ClusterServiceVersion"),
)
_ACCELERATORS: Final = ("nvidia.com/", "amd.com/gpu", "google.com/tpu", "habana.ai/gaudi", "gpu.intel.com/")
_LABELS: Final = (
    "accelerator",
    "amd.com/",
    "cloud.google.com/",
    "feature.node.kubernetes.io/pci-",
    "kubernetes.io/arch",
    "node.kubernetes.io/instance-type",
    "node-role.kubernetes.io/",
    "nvidia.com/",
    "topology.kubernetes.io/",
)


class Capture:
    """Lists objects, writes them to files, and collects notes about kinds that could not be listed."""

    def __init__(self, objects: Objects, directory: Path) -> None:
        self._objects = objects
        self._directory = directory
        self.notes: list[str] = []

    def record(self, file: str, api_version: str, name: str, namespaces: Sequence[str | None]) -> list[Json]:
        """Write the objects of a kind to a file, and return the objects.

        Args:
            namespaces: the namespaces of the objects; None in the sequence means all namespaces.
        """
        try:
            kind = self._objects.kind(api_version, name)
        except ConfigurationError:
            return []
        objs = [each for namespace in namespaces for each in self._listed(kind, namespace)]
        if objs:
            _evidence.write(self._directory / f"{file}.yaml", objs)
        return objs

    def definitions(self) -> list[str]:
        """Return the names of the custom resource definitions."""
        kind = self._objects.kind("apiextensions.k8s.io/v1", "CustomResourceDefinition")
        return [str(each["metadata"]["name"]) for each in self._listed(kind, None)]

    def _listed(self, kind: Kind, namespace: str | None) -> list[Json]:
        try:
            return list(self._objects.listed(Query(kind, namespace)))
        except ApiError as error:
            self.notes.append(str(error))
            return []


def work(objects: Objects, params: Mapping[str, Any]) -> dict[str, Any]:
    """Write the files, and return the result of the module.

    Raises:
        ToolboxError: the cluster does not answer, or rejects the credentials.
    """
    directory = Path(params["directory"])
    capture = Capture(objects, directory)
    version = objects.get("/version")
    cluster_objects = {name: capture.record(file, api, name, [None]) for file, api, name in _CLUSTER_KINDS}
    namespaces = _namespaces(objects, params["namespaces"])
    namespaced_objects = {name: capture.record(file, api, name, namespaces) for file, api, name in _NAMESPACED_KINDS}
    requested = params["namespaces"] or ()
    warnings = [f"there is no namespace {name}" for name in requested if objects.lacks_namespace(name)]
    capture.notes += warnings
    definitions = capture.definitions()
    if definitions:
        filesystem.write_text(directory / "custom_resource_definitions.txt", "\n".join(definitions) + "\n")
    if params["logs"]:
        _, missing = _logs.save(objects.cluster, namespaced_objects["Pod"], directory / "logs", _logs.LogSelection())
        capture.notes += missing
    summary = {
        "version": version.get("gitVersion"),
        "platform": version.get("platform"),
        "nodes": [node_summary(node) for node in cluster_objects["Node"]],
        "namespaces": "all" if namespaces == [None] else namespaces,
        "pods": dict(Counter(str((pod.get("status") or {}).get("phase")) for pod in namespaced_objects["Pod"])),
        "operators": operators(cluster_objects, namespaced_objects),
        "objects": {name: len(objs) for name, objs in {**cluster_objects, **namespaced_objects}.items() if objs},
        "definitions": len(definitions),
        "notes": capture.notes,
    }
    filesystem.write_json(directory / "summary.json", summary)
    return {"changed": False, "summary": summary, "warnings": warnings}


def node_summary(node: Json) -> dict[str, Any]:
    """Return the properties of a node that are relevant for workloads on accelerators."""
    meta, spec, status = node["metadata"], node["spec"], node.get("status") or {}
    info = status.get("nodeInfo") or {}
    return {
        "name": meta["name"],
        "fault": node_fault(node),
        "unschedulable": bool(spec.get("unschedulable")),
        "taints": [f"{each['key']}={each.get('value', '')}:{each['effect']}" for each in spec.get("taints") or ()],
        "kubelet": info.get("kubeletVersion"),
        "runtime": info.get("containerRuntimeVersion"),
        "system": info.get("osImage"),
        "kernel": info.get("kernelVersion"),
        "cpu": (status.get("allocatable") or {}).get("cpu"),
        "memory": (status.get("allocatable") or {}).get("memory"),
        "accelerators": {
            name: {"capacity": count, "allocatable": (status.get("allocatable") or {}).get(name)}
            for name, count in (status.get("capacity") or {}).items()
            if name.startswith(_ACCELERATORS)
        },
        "labels": {name: value for name, value in (meta.get("labels") or {}).items() if name.startswith(_LABELS)},
    }


def operators(
    cluster_objects: Mapping[str, list[Json]], namespaced_objects: Mapping[str, list[Json]]
) -> list[dict[str, Any]]:
    """Return the states of the GPU operator of NVIDIA, and of the operators that OLM has installed."""
    installed = {
        str(each["metadata"]["name"]): (each["spec"].get("version"), (each.get("status") or {}).get("phase"))
        for each in namespaced_objects["ClusterServiceVersion"]
    }
    policies = {
        f"ClusterPolicy {each['metadata']['name']}": (None, (each.get("status") or {}).get("state"))
        for each in cluster_objects["ClusterPolicy"]
    }
    states = {**installed, **policies}
    return [{"name": name, "version": version, "state": state} for name, (version, state) in sorted(states.items())]


def _namespaces(objects: Objects, names: Sequence[str] | None) -> list[str | None]:
    """Return the namespaces to record: `names`, or `[None]` for all namespaces if there are no `names`.

    If there are no `names` and the account may not read all namespaces, return only the current namespace.
    """
    if names:
        return list(names)
    try:
        next(objects.listed(Query(POD)), None)
    except ApiError:
        return [objects.cluster.namespace]
    return [None]


if __name__ == "__main__":
    _entry.run(AnsibleModule, _OPTIONS, work)
