"""Ansible module: write the logs of pods, the pods themselves and the events about them into a directory.

    - name: Save the logs of the server
      cluster_logs:
        selector: app.kubernetes.io/name=server
        directory: "{{ artifact_extra_logs_dir }}/artifacts"

Options, besides those of all modules for clusters (`kubeconfig`, `context`, `namespace`):

- `selector`: a label selector for the pods; by default all pods of the namespace.
- `directory`: the directory for `logs/POD/CONTAINER.log`, `logs/POD/CONTAINER.previous.log`, `pods.yaml` and
  `events.yaml`.
- `containers`: the names of the containers; by default all.
- `since`: save only lines of the last `30s`, `10m`, `2h` or `1d`.
- `previous`: save also the log of each container before its last restart.
- `about`: the names of further objects whose events to save.

The module returns the `files`, the `missing` logs with the reasons, and for each of the `pods` its name, its phase, and
how its containers ended.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ansible.module_utils.basic import AnsibleModule  # type: ignore[import-untyped]

from toolbox.ansible.modules import _entry, _evidence, _logs
from toolbox.kubernetes.api.connection import Json
from toolbox.kubernetes.api.objects import Objects, Query
from toolbox.model.errors import UsageError
from toolbox.model.nearest import did_you_mean

_OPTIONS: Final = {
    "selector": {"type": "str"},
    "directory": {"type": "path", "required": True},
    "containers": {"type": "list", "elements": "str"},
    "since": {"type": "str"},
    "previous": {"type": "bool", "default": True},
    "about": {"type": "list", "elements": "str", "default": []},
}
_AGE = re.compile(r"(?P<count>\d+)\s*(?P<unit>[smhd])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def work(objects: Objects, given: Mapping[str, Any]) -> dict[str, Any]:
    """Write the files.

    Raises:
        ToolboxError: the pods cannot be listed.
    """
    cluster, directory = objects.cluster, Path(given["directory"])
    wanted = _logs.Wanted(given["containers"], seconds(given["since"]), given["previous"])
    kind = objects.kind("v1", "Pod")
    pods = list(objects.listed(Query(kind, cluster.namespace, given["selector"] or None)))
    names = [str(pod["metadata"]["name"]) for pod in pods]
    _evidence.write(directory / "pods.yaml", pods)
    _evidence.write(directory / "events.yaml", _logs.events(objects, cluster.namespace, [*names, *given["about"]]))
    written, missing = _logs.save(cluster, pods, directory / "logs", wanted)
    warnings = [] if given["about"] else list(_absent(objects, pods, given))
    ends = list(map(_ending, pods))
    return {"changed": False, "files": written, "missing": missing, "pods": ends, "warnings": warnings}


def _absent(objects: Objects, pods: Sequence[Json], given: Mapping[str, Any]) -> Iterator[str]:
    """Yield a warning for each thing that the options name and the cluster does not have."""
    namespace = objects.cluster.namespace
    if not pods:
        if objects.lacks_namespace(namespace):
            yield f"there is no namespace {namespace}"
        else:
            chosen = f" with the labels {given['selector']}" if given["selector"] else ""
            yield f"namespace {namespace} has no pods{chosen}"
        return
    containers = {str(each["name"]) for pod in pods for each in _logs.containers(pod)}
    for name in given["containers"] or ():
        if name not in containers:
            yield f"no pod has a container {name}: {did_you_mean(name, containers, label='their containers')}"


def seconds(age: str | None) -> int | None:
    """Return the number of seconds in a text such as `10m`.

    Raises:
        UsageError: the text has another form.
    """
    if not age:
        return None
    match = _AGE.fullmatch(age.strip())
    if match is None:
        raise UsageError(f"since is {age!r}: a number and s, m, h or d were expected, as in 30s, 10m, 2h, 1d")
    return max(1, int(match["count"]) * _SECONDS[match["unit"]])


def _ending(pod: Json) -> dict[str, Any]:
    """Return the phase of a pod, and how its containers ended."""
    status = pod.get("status") or {}
    states = {str(each["name"]): each.get("state") or {} for each in status.get("containerStatuses") or ()}
    exits = {name: state["terminated"].get("exitCode") for name, state in states.items() if "terminated" in state}
    reasons = {name: state["terminated"].get("reason") for name, state in states.items() if "terminated" in state}
    node = pod["spec"].get("nodeName")
    name = pod["metadata"]["name"]
    return {"name": name, "node": node, "phase": status.get("phase"), "exit_codes": exits, "reasons": reasons}


if __name__ == "__main__":
    _entry.run(AnsibleModule, _OPTIONS, work)
