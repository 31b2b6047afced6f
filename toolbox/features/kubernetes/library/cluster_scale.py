"""Ansible module: check whether a pool may have a new number of nodes, and scale a MachineSet to this number.

    - name: Scale the MachineSet
      cluster_scale:
        machine_set: a100
        namespace: openshift-machine-api
        replicas: 2
        directory: "{{ artifact_extra_logs_dir }}/artifacts"

The module has these options, and `kubeconfig`, `context` and `namespace`:

- `machine_set`: the MachineSet to scale.
- `selector`: instead of `machine_set`, a label selector for the nodes of a pool. The module then only checks the
  number, and a later task of the role scales the pool.
- `pool`: the name of the pool in messages.
- `autoscaled`: whether the pool has an autoscaler.
- `zones`: the number of zones of the pool.
- `replicas`: the new number of nodes.
- `maximum`: the maximum number of nodes.
- `force`: remove nodes even if they run pods of other users.
- `timeout`: the number of seconds to wait until the machines are ready.
- `directory`: the directory for `nodes.yaml`, which contains the nodes before the change.

The module returns the previous number of nodes as `before`, and whether it differs from `replicas` as `changed`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ansible.module_utils.basic import AnsibleModule

from toolbox.features.kubernetes.api.connection import Json
from toolbox.features.kubernetes.api.objects import NODE, POD, Objects, Query
from toolbox.features.kubernetes.api.waiting import watching_all
from toolbox.features.kubernetes.library import _entry, _evidence
from toolbox.features.kubernetes.library.cluster_objects import is_ours
from toolbox.ground.model.errors import ConfigurationError, InfrastructureError

_OPTIONS: Final = {
    "machine_set": {"type": "str"},
    "selector": {"type": "str"},
    "pool": {"type": "str"},
    "autoscaled": {"type": "bool", "default": False},
    "zones": {"type": "int", "default": 1},
    "replicas": {"type": "int", "required": True},
    "maximum": {"type": "int"},
    "force": {"type": "bool", "default": False},
    "timeout": {"type": "float", "default": 1800.0},
    "directory": {"type": "path", "required": True},
}
_MACHINES: Final = "machine.openshift.io/v1beta1"
_SET_LABEL: Final = "machine.openshift.io/cluster-api-machineset"
# The autoscaler of OpenShift adds this annotation to the MachineSets that it scales.
_AUTOSCALED: Final = "machine.openshift.io/cluster-api-autoscaler-node-group-max-size"
_MAX_SHOWN: Final = 5
_ENDED_PHASES: Final = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool of nodes.

    Args:
        count: the current number of nodes; for a MachineSet, the number of requested machines.
        zones: the number of zones. Each zone has the same number of nodes.
    """

    label: str
    count: int
    nodes: Sequence[Json]
    is_autoscaled: bool = False
    zones: int = 1


def work(objects: Objects, params: Mapping[str, Any]) -> dict[str, Any]:
    """Check the number and scale the MachineSet, and return the result of the module.

    Raises:
        ToolboxError: the number of nodes is not allowed, or the machines are not ready in time.
    """
    pool = _machine_set(objects, params) if params["machine_set"] else _node_pool(objects, params)
    _evidence.write(Path(params["directory"]) / "nodes.yaml", pool.nodes)
    pods = list(objects.listed(Query(POD))) if params["replicas"] < pool.count else []
    if refusal := refusal_reason(pool, params["replicas"], params["maximum"], [] if params["force"] else pods):
        raise ConfigurationError(f"{pool.label}: {refusal}")
    changed = params["replicas"] != pool.count
    if params["machine_set"]:
        _scale(objects, params, is_changed=changed)
    return {"changed": changed, "before": pool.count}


def refusal_reason(pool: Pool, replicas: int, maximum: int | None, pods: Sequence[Json]) -> str:
    """Return why a pool may not have `replicas` nodes; empty if this number is allowed.

    Args:
        maximum: the maximum number of nodes; None for no limit.
        pods: the pods of the cluster. Nodes may not be removed if pods of other users run on them.
    """
    if replicas < 0:
        return f"it cannot have {replicas} nodes"
    if maximum is not None and replicas > maximum:
        return f"{replicas} nodes are more than the maximum of {maximum}"
    if pool.is_autoscaled:
        return "it is scaled by an autoscaler, which would change the number again: turn the autoscaler off first"
    if replicas % pool.zones:
        return f"{replicas} nodes cannot be spread evenly over its {pool.zones} zones"
    busy = [] if replicas >= pool.count else foreign_pods(pool.nodes, pods)
    if not busy:
        return ""
    more = f" and {len(busy) - _MAX_SHOWN} more" if len(busy) > _MAX_SHOWN else ""
    return (
        f"{pool.count - replicas} of its {pool.count} nodes would be removed, and pods of other users run on them: "
        f"{', '.join(busy[:_MAX_SHOWN])}{more}; to remove the nodes anyway, use --force"
    )


def foreign_pods(nodes: Sequence[Json], pods: Sequence[Json]) -> list[str]:
    """Return the pods of other users on any node of a pool, as `NAMESPACE/POD on NODE`.

    The cluster chooses the nodes that it removes, so the pods of all nodes count.
    """
    names = {str(node["metadata"]["name"]) for node in nodes}
    return [
        f"{pod['metadata']['namespace']}/{pod['metadata']['name']} on {pod['spec']['nodeName']}"
        for pod in pods
        if pod["spec"].get("nodeName") in names and not _allows_removal(pod) and not is_ours(pod)
    ]


def _allows_removal(pod: Json) -> bool:
    """Return whether the node of a pod may be removed: the pod has ended, or belongs to a DaemonSet or to the node."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return (pod.get("status") or {}).get("phase") in _ENDED_PHASES or any(
        each["kind"] in ("DaemonSet", "Node") for each in owners
    )


def _node_pool(objects: Objects, params: Mapping[str, Any]) -> Pool:
    nodes = list(objects.listed(Query(NODE, labels=params["selector"])))
    label = params["pool"] or f"the nodes with {params['selector']}"
    return Pool(label, len(nodes), nodes, params["autoscaled"], params["zones"])


def _machine_set(objects: Objects, params: Mapping[str, Any]) -> Pool:
    name, namespace = params["machine_set"], objects.cluster.namespace
    machine_set = objects.read(objects.kind(_MACHINES, "MachineSet"), namespace, name)
    if machine_set is None:
        raise ConfigurationError(f"there is no MachineSet {name} in namespace {namespace}")
    machines = objects.listed(Query(objects.kind(_MACHINES, "Machine"), namespace, f"{_SET_LABEL}={name}"))
    names = {((each.get("status") or {}).get("nodeRef") or {}).get("name") for each in machines}
    nodes = [each for each in objects.listed(Query(NODE)) if each["metadata"]["name"] in names]
    is_autoscaled = _AUTOSCALED in (machine_set["metadata"].get("annotations") or {})
    return Pool(f"MachineSet {name}", int(machine_set["spec"].get("replicas", 1)), nodes, is_autoscaled)


def _scale(objects: Objects, params: Mapping[str, Any], *, is_changed: bool) -> None:
    name, namespace, replicas = params["machine_set"], objects.cluster.namespace, params["replicas"]
    kind = objects.kind(_MACHINES, "MachineSet")
    if is_changed:
        objects.merge(kind, namespace, name, {"spec": {"replicas": replicas}})
    with watching_all(objects, Query(kind, namespace, fields=f"metadata.name={name}")) as view:
        (watched_objects,) = view.watched

        def counts() -> tuple[int, int]:
            status = (watched_objects.objects[0].get("status") or {}) if watched_objects.objects else {}
            return int(status.get("replicas", 0)), int(status.get("readyReplicas", 0))

        if view.until(lambda: True if counts() == (replicas, replicas) else None, params["timeout"]) is None:
            existing, ready = counts()
            raise InfrastructureError(
                f"MachineSet {name}: {ready} of {replicas} machines are ready after {params['timeout']:g} s, "
                f"{existing} exist{view.silence_note}"
            )


if __name__ == "__main__":
    _entry.run(AnsibleModule, _OPTIONS, work)
