"""A fake `gcloud` with one cluster and one node pool. It has only the subcommands that `cluster set_scale` calls.

It takes the options of the real program, prints the same output, and keeps the pool in a file. Its nodes are Node
objects of the cluster of KUBECONFIG. They are ready, and a taint keeps all pods away.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
from pathlib import Path
from typing import Any

from kubernetes import client, config

STATE = "FAKE_GCLOUD_STATE"
_POOL_LABEL = "cloud.google.com/gke-nodepool"


def install(directory: Path, cluster: str, pool: str, *, zones: int = 1, autoscaled: bool = False) -> dict[str, str]:
    """Put a program `gcloud` into a directory, and return the environment variables with which it is found first."""
    described: dict[str, Any] = {"name": pool, "locations": [f"us-central1-{zone}" for zone in "abc"[:zones]]}
    if autoscaled:
        described["autoscaling"] = {"enabled": True, "maxNodeCount": 8}
    directory.mkdir(exist_ok=True)
    state = directory / "state.json"
    state.write_text(json.dumps({"cluster": cluster, "pool": described, "calls": []}))
    program = directory / "gcloud"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__)} "$@"\n')
    program.chmod(0o755)
    return {"PATH": f"{directory}{os.pathsep}{os.environ.get('PATH', os.defpath)}", STATE: str(state)}


def main() -> None:
    parser = argparse.ArgumentParser("gcloud", allow_abbrev=False)
    groups = parser.add_subparsers(dest="group", required=True)
    container = groups.add_parser("container").add_subparsers(dest="kind", required=True)
    pools = container.add_parser("node-pools").add_subparsers(dest="verb", required=True)
    clusters = container.add_parser("clusters").add_subparsers(dest="verb", required=True)
    describe, resize = pools.add_parser("describe"), clusters.add_parser("resize")
    for verb in (describe, resize):
        verb.add_argument("name")
        verb.add_argument("--location")
        verb.add_argument("--project")
    describe.add_argument("--cluster", required=True)
    describe.add_argument("--format", choices=["json"], required=True)
    resize.add_argument("--node-pool", required=True)
    resize.add_argument("--num-nodes", type=int, required=True)
    resize.add_argument("--quiet", action="store_true", required=True)  # the real program would ask
    arguments = parser.parse_args()
    file = Path(os.environ[STATE])
    state = json.loads(file.read_text())
    state["calls"].append(sys.argv[1:])
    file.write_text(json.dumps(state))
    _describe(arguments, state) if arguments.verb == "describe" else _resize(arguments, state)


def _describe(arguments: argparse.Namespace, state: dict[str, Any]) -> None:
    if (arguments.cluster, arguments.name) != (state["cluster"], state["pool"]["name"]):
        _refuse("node-pools.describe", f"clusters/{arguments.cluster}/nodePools/{arguments.name}")
    json.dump(state["pool"], sys.stdout)


def _resize(arguments: argparse.Namespace, state: dict[str, Any]) -> None:
    if (arguments.name, arguments.node_pool) != (state["cluster"], state["pool"]["name"]):
        _refuse("clusters.resize", f"clusters/{arguments.name}")
    wanted = arguments.num_nodes * len(state["pool"]["locations"])
    with config.new_client_from_config() as api:
        core: Any = client.CoreV1Api(api)
        nodes = core.list_node(label_selector=f"{_POOL_LABEL}={arguments.node_pool}").items
        for node in nodes[wanted:]:
            core.delete_node(node.metadata.name)
        for _ in range(wanted - len(nodes)):
            add_node(core, arguments.node_pool)


def add_node(core: Any, pool: str) -> str:
    """Make a node of a pool, and return its name."""
    name = f"{pool}-{secrets.token_hex(4)}"
    taint = {"key": "topgallant.dev/test", "effect": "NoSchedule"}
    core.create_node({"metadata": {"name": name, "labels": {_POOL_LABEL: pool}}, "spec": {"taints": [taint]}})
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "it is"}
    core.patch_node_status(name, {"status": {"conditions": [ready]}})
    return name


def _refuse(method: str, what: str) -> None:
    sys.exit(f"ERROR: (gcloud.container.{method}) ResponseError: code=404, message=Not found: {what}.")


if __name__ == "__main__":
    main()
