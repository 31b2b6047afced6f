"""Ansible module: wait until a cluster is ready: its API server, its nodes, and the DaemonSets in kube-system.

    - name: Wait for the cluster
      cluster_ready:
        nodes: 2
        selector: cloud.google.com/gke-nodepool=a100
        timeout: 600
        directory: "{{ artifact_extra_logs_dir }}/artifacts"

Options, besides those of all modules for clusters (`kubeconfig`, `context`, `namespace`):

- `nodes`: the minimum number of nodes. All selected nodes have to be ready.
- `exactly`: require exactly this number of nodes.
- `selector`: a label selector for the nodes; by default all nodes.
- `system`: wait also for the DaemonSets in the namespace kube-system.
- `timeout`: the number of seconds to wait.
- `directory`: the directory for `nodes.yaml`.

The module returns as `ready` the names of the nodes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ansible.module_utils.basic import AnsibleModule  # type: ignore[import-untyped]

from toolbox.ansible.modules import _entry, _evidence, _settling
from toolbox.kubernetes.api import readiness
from toolbox.kubernetes.api.connection import Json
from toolbox.kubernetes.api.objects import Objects, Query
from toolbox.kubernetes.api.waiting import watching_all
from toolbox.model.errors import InfrastructureError

_OPTIONS: Final = {
    "nodes": {"type": "int", "default": 1},
    "exactly": {"type": "bool", "default": False},
    "selector": {"type": "str"},
    "system": {"type": "bool", "default": True},
    "timeout": {"type": "float", "default": 600.0},
    "directory": {"type": "path", "required": True},
}
_SYSTEM: Final = "kube-system"
_UNFIT: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_MOST_SHOWN: Final = 5


def work(objects: Objects, given: Mapping[str, Any]) -> dict[str, Any]:
    """Wait until the cluster is ready.

    Raises:
        ToolboxError: the cluster is not ready in time; the message gives the reasons.
    """
    deadline = time.monotonic() + given["timeout"]
    objects.get("/readyz", given["timeout"])
    nodes = Query(objects.kind("v1", "Node"), labels=given["selector"] or None)
    agents = Query(objects.kind("apps/v1", "DaemonSet"), _SYSTEM) if given["system"] else None
    with watching_all(objects, nodes, agents, timeout=max(1.0, deadline - time.monotonic())) as view:
        seen, system = view.watched

        def lacks() -> list[str]:
            found = [*node_lacks(seen.objects, given["nodes"]), *_system_lacks(system.objects)]
            if given["exactly"] and len(seen.objects) > given["nodes"]:
                found.append(f"there are {len(seen.objects)} nodes, but {given['nodes']} are required")
            return found

        is_ready = view.until(lambda: None if lacks() else True, deadline - time.monotonic())
        _evidence.write(Path(given["directory"]) / "nodes.yaml", seen.objects)
        if not is_ready:
            texts = lacks()
            more = f"; and {len(texts) - _MOST_SHOWN} more" if len(texts) > _MOST_SHOWN else ""
            told = "; ".join(texts[:_MOST_SHOWN]) + more + _settling.after(view)
            told = f"(nodes with {given['selector']}) {told}" if given["selector"] else told
            raise InfrastructureError(f"{objects.cluster.label} is not ready after {given['timeout']:g} s: {told}")
        return {"changed": False, "ready": [str(node["metadata"]["name"]) for node in seen.objects]}


def node_lacks(nodes: Sequence[Json], wanted: int) -> list[str]:
    """Return a message for each node that is not ready, and one if there are too few ready nodes."""
    faults = {str(node["metadata"]["name"]): node_fault(node) for node in nodes}
    ready = [name for name, fault in faults.items() if fault is None]
    found = [f"{len(ready)} of {wanted} required nodes are ready, {len(nodes)} exist"] if len(ready) < wanted else []
    return found + [f"node {name}: {fault}" for name, fault in faults.items() if fault is not None]


def node_fault(node: Json) -> str | None:
    """Return why a node is not ready; None if it is ready."""
    if readiness.condition(node, "Ready") is None:
        known = readiness.condition(node, "Ready", "False") or readiness.condition(node, "Ready", "Unknown") or {}
        said = ": ".join(str(known[key]) for key in ("reason", "message") if known.get(key))
        return f"it is not ready: {said}" if said else "it is not ready"
    taints = [taint["key"] for taint in node["spec"].get("taints") or () if taint["key"] in _UNFIT]
    return f"it has the taint {', '.join(sorted(set(taints)))}" if taints else None


def _system_lacks(daemon_sets: Sequence[Json]) -> list[str]:
    lacks = {str(each["metadata"]["name"]): readiness.lack({**each, "kind": "DaemonSet"}) for each in daemon_sets}
    return [f"DaemonSet {name} of {_SYSTEM}: {lack}" for name, lack in lacks.items() if lack is not None]


if __name__ == "__main__":
    _entry.run(AnsibleModule, _OPTIONS, work)
