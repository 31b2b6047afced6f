"""Ansible module: write the logs of pods, the pods themselves and the events about them into a directory.

    - name: Save the logs of the server
      cluster_logs:
        selector: app.kubernetes.io/name=server
        directory: "{{ artifact_extra_logs_dir }}/artifacts"

The module has these options, and `kubeconfig`, `context` and `namespace`:

- `selector`: a label selector for the pods; by default all pods of the namespace.
- `directory`: the directory for `logs/POD/CONTAINER.log`, `logs/POD/CONTAINER.previous.log`, `pods.yaml` and
  `events.yaml`.
- `containers`: the names of the containers; by default all containers.
- `since`: save only lines of this duration before now, such as `7200`, `30s`, `10m`, `2h` or `1d`.
- `previous`: save also the log of each container before its last restart.
- `about`: the names of further objects whose events are saved.
- `fetched`: a JSON file for the returned `files` and `missing`.
- `ended`: a JSON file for the returned `pods` and `missing`.

The module returns the paths of the new `files`, a message for each of the `missing` logs, and for each of the `pods`
its name, its phase, and how its containers ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ansible.module_utils.basic import AnsibleModule

from toolbox.features.kubernetes.api import readiness
from toolbox.features.kubernetes.api.connection import Json
from toolbox.features.kubernetes.api.objects import POD, Objects, Query
from toolbox.features.kubernetes.library import _entry, _evidence, _logs
from toolbox.ground.model import quantities
from toolbox.ground.model.errors import UsageError
from toolbox.ground.model.nearest import did_you_mean
from toolbox.ground.system import filesystem

_OPTIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "selector": {"type": "str"},
    "directory": {"type": "path", "required": True},
    "containers": {"type": "list", "elements": "str"},
    "since": {"type": "str"},
    "previous": {"type": "bool", "default": True},
    "about": {"type": "list", "elements": "str", "default": []},
    "fetched": {"type": "path"},
    "ended": {"type": "path"},
}


def work(objects: Objects, params: Mapping[str, Any]) -> dict[str, Any]:
    """Write the files, and return the result of the module.

    Raises:
        ToolboxError: the pods cannot be listed.
    """
    cluster, directory = objects.cluster, Path(params["directory"])
    selection = _logs.LogSelection(params["containers"], seconds(params["since"]), params["previous"])
    pods = list(objects.listed(Query(POD, cluster.namespace, params["selector"] or None)))
    names = [str(pod["metadata"]["name"]) for pod in pods]
    _evidence.write(directory / "pods.yaml", pods)
    _evidence.write(directory / "events.yaml", _logs.events(objects, cluster.namespace, [*names, *params["about"]]))
    files, missing = _logs.save(cluster, pods, directory / "logs", selection)
    warnings = [] if params["about"] else list(_absent(objects, pods, params))
    ends = list(map(_ending, pods))
    if params["fetched"]:
        filesystem.write_json(Path(params["fetched"]), {"files": files, "missing": missing})
    if params["ended"]:
        filesystem.write_json(Path(params["ended"]), {"pods": ends, "missing": missing})
    return {"changed": False, "files": files, "missing": missing, "pods": ends, "warnings": warnings}


def _absent(objects: Objects, pods: Sequence[Json], params: Mapping[str, Any]) -> Iterator[str]:
    """Yield a warning for each namespace, selector or container of the options that matches nothing in the cluster."""
    namespace = objects.cluster.namespace
    if not pods:
        if objects.lacks_namespace(namespace):
            yield f"there is no namespace {namespace}"
        else:
            with_labels = f" with the labels {params['selector']}" if params["selector"] else ""
            yield f"namespace {namespace} has no pods{with_labels}"
        return
    containers = {str(each["name"]) for pod in pods for each in readiness.containers(pod)}
    for name in params["containers"] or ():
        if name not in containers:
            yield f"no pod has a container {name}: {did_you_mean(name, containers, label='containers')}"


def seconds(age: str | None) -> int | None:
    """Return the number of seconds of a duration such as `10m`.

    Raises:
        UsageError: the text does not have this form.
    """
    if not age:
        return None
    try:
        return max(1, int(quantities.seconds(age)))
    except (ValueError, OverflowError):
        raise UsageError(f"--since must be {quantities.DURATION}, not {age!r}") from None


def _ending(pod: Json) -> dict[str, Any]:
    """Return the phase of a pod, and how its containers ended."""
    status = pod.get("status") or {}
    states = {str(each["name"]): each.get("state") or {} for each in status.get("containerStatuses") or ()}
    ends = {name: state["terminated"] for name, state in states.items() if "terminated" in state}
    exits = {name: end.get("exitCode") for name, end in ends.items()}
    reasons = {name: end.get("reason") for name, end in ends.items()}
    node = pod["spec"].get("nodeName")
    name = pod["metadata"]["name"]
    return {"name": name, "node": node, "phase": status.get("phase"), "exit_codes": exits, "reasons": reasons}


if __name__ == "__main__":
    _entry.run(AnsibleModule, _OPTIONS, work)
