"""Ansible module: wait until a cluster is ready: its API server, its nodes, and the DaemonSets in kube-system.

    - name: Wait for the cluster
      cluster_ready:
        nodes: 2
        selector: cloud.google.com/gke-nodepool=a100
        timeout: 600
        directory: "{{ artifact_extra_logs_dir }}/artifacts"

The module has these options, and `kubeconfig`, `context` and `namespace`:

- `nodes`: the minimum number of nodes. All selected nodes must be ready.
- `exactly`: require exactly `nodes` nodes.
- `selector`: a label selector for the nodes; by default all nodes.
- `system`: wait also for the DaemonSets in the namespace kube-system.
- `timeout`: the number of seconds to wait.
- `directory`: the directory for `nodes.yaml`.

The module returns the names of the nodes as `ready`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ansible.module_utils.basic import AnsibleModule

from toolbox.features.kubernetes.api import readiness
from toolbox.features.kubernetes.api.connection import Json
from toolbox.features.kubernetes.api.objects import DAEMON_SET, NODE, Objects, Query
from toolbox.features.kubernetes.api.waiting import watching_all
from toolbox.features.kubernetes.library import _entry, _evidence
from toolbox.ground.model.errors import InfrastructureError
from toolbox.ground.model.text import first_of

_OPTIONS: Final = {
    "nodes": {"type": "int", "default": 1},
    "exactly": {"type": "bool", "default": False},
    "selector": {"type": "str"},
    "system": {"type": "bool", "default": True},
    "timeout": {"type": "float", "default": 600.0},
    "directory": {"type": "path", "required": True},
}
_SYSTEM: Final = "kube-system"
_UNFIT_TAINTS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_MAX_SHOWN: Final = 5


def work(objects: Objects, params: Mapping[str, Any]) -> dict[str, Any]:
    """Wait until the cluster is ready.

    Raises:
        ToolboxError: the cluster is not ready in time.
    """
    deadline = time.monotonic() + params["timeout"]
    objects.get("/readyz", params["timeout"])
    node_query = Query(NODE, labels=params["selector"] or None)
    system_query = Query(DAEMON_SET, _SYSTEM) if params["system"] else None
    with watching_all(objects, node_query, system_query, timeout=max(1.0, deadline - time.monotonic())) as view:
        nodes, system = view.watched

        def faults() -> list[str]:
            messages = [*node_faults(nodes.objects, params["nodes"]), *_daemon_set_faults(system.objects)]
            if params["exactly"] and len(nodes.objects) > params["nodes"]:
                messages.append(f"there are {len(nodes.objects)} nodes, but {params['nodes']} are required")
            return messages

        is_ready = view.until(lambda: None if faults() else True, deadline - time.monotonic())
        _evidence.write(Path(params["directory"]) / "nodes.yaml", nodes.objects)
        if not is_ready:
            text = "; ".join(first_of(faults(), _MAX_SHOWN)) + view.silence_note
            text = f"(nodes with {params['selector']}) {text}" if params["selector"] else text
            raise InfrastructureError(f"{objects.cluster.label} is not ready after {params['timeout']:g} s: {text}")
        return {"changed": False, "ready": [str(node["metadata"]["name"]) for node in nodes.objects]}


def node_faults(nodes: Sequence[Json], required: int) -> list[str]:
    """Return a message for each node that is not ready, and a message if there are too few ready nodes."""
    faults = {str(node["metadata"]["name"]): node_fault(node) for node in nodes}
    ready = [name for name, fault in faults.items() if fault is None]
    too_few = f"{len(ready)} of {required} required nodes are ready, {len(nodes)} exist"
    messages = [f"node {name}: {fault}" for name, fault in faults.items() if fault is not None]
    return [too_few, *messages] if len(ready) < required else messages


def node_fault(node: Json) -> str | None:
    """Return why a node is not ready; None if it is ready."""
    if (reason := readiness.unready_reason(node)) is not None:
        return reason
    taints = [taint["key"] for taint in node["spec"].get("taints") or () if taint["key"] in _UNFIT_TAINTS]
    return f"it has the taint {', '.join(sorted(set(taints)))}" if taints else None


def _daemon_set_faults(daemon_sets: Sequence[Json]) -> list[str]:
    reasons = {str(obj["metadata"]["name"]): readiness.unready_reason(obj) for obj in daemon_sets}
    return [f"DaemonSet {name} of {_SYSTEM}: {reason}" for name, reason in reasons.items() if reason is not None]


if __name__ == "__main__":
    _entry.run(AnsibleModule, _OPTIONS, work)
