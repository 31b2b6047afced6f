"""Ansible module: refuse a number of nodes that must not be, and give a MachineSet one that may.

    - name: Scale the MachineSet
      cluster_scale:
        machine_set: a100
        namespace: openshift-machine-api
        replicas: 2
        directory: "{{ artifact_extra_logs_dir }}/artifacts"

Options, besides those of every module of ours (`kubeconfig`, `context`, `namespace`):

- `machine_set`: the MachineSet, which is changed; or
- `selector`: the labels of the nodes of a pool. Nothing is changed then: who knows how changes it afterwards.
- `pool`: what messages call it; and `autoscaled`, `zones`: what is known of it.
- `replicas`: how many nodes there shall be, and `maximum`: how many there may be.
- `force`: nodes go also where pods run that are not ours.
- `timeout`: until so many machines are ready, in seconds.
- `directory`: gets `nodes.yaml`, the nodes as they were.

It returns how many there were (`before`), and whether that was or has to be `changed`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ansible.module_utils.basic import AnsibleModule  # type: ignore[import-untyped]

from toolbox.ansible.modules import _entry, _evidence, _settling
from toolbox.ansible.modules.cluster_objects import is_ours
from toolbox.kubernetes.api.connection import Json
from toolbox.kubernetes.api.objects import Kind, Objects, Query
from toolbox.kubernetes.api.waiting import looking
from toolbox.model.errors import ConfigurationError, InfrastructureError

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
# The autoscaler of OpenShift notes its bounds in the MachineSet.
_AUTOSCALED: Final = "machine.openshift.io/cluster-api-autoscaler-node-group-max-size"
_MOST_SHOWN: Final = 5
_ENDED: Final = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes of one kind.

    Args:
        label: what messages call it.
        count: how many there are, or are meant to be.
        zones: over how many they are spread, as many in each.
    """

    label: str
    count: int
    nodes: Sequence[Json]
    is_autoscaled: bool = False
    zones: int = 1


def work(objects: Objects, given: Mapping[str, Any]) -> dict[str, Any]:
    """Do what the options say.

    Raises:
        ToolboxError: it is refused, or has not come about in time.
    """
    pool = _machine_set(objects, given) if given["machine_set"] else _node_pool(objects, given)
    _evidence.write(Path(given["directory"]) / "nodes.yaml", pool.nodes)
    pods = list(objects.listed(Query(objects.kind("v1", "Pod")))) if given["replicas"] < pool.count else []
    if refusal := refused(pool, given["replicas"], given["maximum"], [] if given["force"] else pods):
        raise ConfigurationError(f"{pool.label}: {refusal}")
    changed = given["replicas"] != pool.count
    if given["machine_set"]:
        _scale(objects, given, is_changed=changed)
    return {"changed": changed, "before": pool.count}


def refused(pool: Pool, replicas: int, maximum: int | None, pods: Sequence[Json]) -> str:
    """Return why a pool may not have so many nodes; nothing where it may.

    Args:
        pods: of the cluster; those that would be lost with a node count.
    """
    if replicas < 0:
        return f"it cannot have {replicas} nodes"
    if maximum is not None and replicas > maximum:
        return f"{replicas} nodes are more than the maximum of {maximum}"
    if pool.is_autoscaled:
        return "it is scaled by an autoscaler, which would change the number again: turn that off first"
    if replicas % pool.zones:
        return f"{replicas} nodes cannot be spread evenly over its {pool.zones} zones"
    busy = [] if replicas >= pool.count else lost(pool.nodes, pods)
    if not busy:
        return ""
    more = f" and {len(busy) - _MOST_SHOWN} more" if len(busy) > _MOST_SHOWN else ""
    return (
        f"{pool.count - replicas} of its {pool.count} nodes would be removed, and pods of other users run on them: "
        f"{', '.join(busy[:_MOST_SHOWN])}{more}; to remove the nodes anyway, use --force"
    )


def lost(nodes: Sequence[Json], pods: Sequence[Json]) -> list[str]:
    """Return the pods of others that go with nodes, as `NAMESPACE/POD on NODE`: nobody says which nodes will go."""
    names = {str(node["metadata"]["name"]) for node in nodes}
    return [
        f"{pod['metadata']['namespace']}/{pod['metadata']['name']} on {pod['spec']['nodeName']}"
        for pod in pods
        if pod["spec"].get("nodeName") in names and not _is_spared(pod) and not is_ours(pod)
    ]


def _is_spared(pod: Json) -> bool:
    """Whether a pod has ended, or is on each node and belongs to it."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return (pod.get("status") or {}).get("phase") in _ENDED or any(
        each["kind"] in ("DaemonSet", "Node") for each in owners
    )


def _node_pool(objects: Objects, given: Mapping[str, Any]) -> Pool:
    nodes = list(objects.listed(Query(objects.kind("v1", "Node"), labels=given["selector"])))
    label = given["pool"] or f"the nodes with {given['selector']}"
    return Pool(label, len(nodes), nodes, given["autoscaled"], given["zones"])


def _machine_set(objects: Objects, given: Mapping[str, Any]) -> Pool:
    name, namespace = given["machine_set"], objects.cluster.namespace
    found = objects.read(objects.kind(_MACHINES, "MachineSet"), namespace, name)
    if found is None:
        raise ConfigurationError(f"there is no MachineSet {name} in namespace {namespace}")
    machines = objects.listed(Query(objects.kind(_MACHINES, "Machine"), namespace, f"{_SET_LABEL}={name}"))
    names = {((each.get("status") or {}).get("nodeRef") or {}).get("name") for each in machines}
    nodes = [each for each in objects.listed(Query(objects.kind("v1", "Node"))) if each["metadata"]["name"] in names]
    is_autoscaled = _AUTOSCALED in (found["metadata"].get("annotations") or {})
    return Pool(f"MachineSet {name}", int(found["spec"].get("replicas", 1)), nodes, is_autoscaled)


def _scale(objects: Objects, given: Mapping[str, Any], *, is_changed: bool) -> None:
    name, namespace, replicas = given["machine_set"], objects.cluster.namespace, given["replicas"]
    kind: Kind = objects.kind(_MACHINES, "MachineSet")
    if is_changed:
        objects.merge(kind, namespace, name, {"spec": {"replicas": replicas}})
    with looking(objects, Query(kind, namespace, fields=f"metadata.name={name}")) as view:
        (sight,) = view.sights

        def counts() -> tuple[int, int]:
            status = (sight.objects[0].get("status") or {}) if sight.objects else {}
            return int(status.get("replicas", 0)), int(status.get("readyReplicas", 0))

        if view.until(lambda: True if counts() == (replicas, replicas) else None, given["timeout"]) is None:
            there, ready = counts()
            raise InfrastructureError(
                f"MachineSet {name}: {ready} of {replicas} machines are ready after {given['timeout']:g} s, "
                f"{there} exist{_settling.after(view)}"
            )


if __name__ == "__main__":
    _entry.run(AnsibleModule, _OPTIONS, work)
