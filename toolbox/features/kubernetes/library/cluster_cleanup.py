"""Ansible module: delete Topgallant's objects in a namespace, or the whole namespace, and wait until they are deleted.

    - name: Delete the remaining objects of a run
      cluster_cleanup:
        namespace: tests
        run: 20261121-101500
        directory: "{{ artifact_extra_logs_dir }}/artifacts"

The module has these options, and `kubeconfig`, `context` and `namespace`:

- `run`: delete only the objects of this run; by default, all objects with Topgallant's label
  `app.kubernetes.io/managed-by`.
- `delete_namespace`: delete the namespace and all objects in it.
- `force`: delete objects also in namespaces that Topgallant did not create, and Jobs of runs that may be active.
  Objects in system namespaces are never deleted.
- `timeout`: the number of seconds to wait until the objects are deleted.
- `directory`: the directory for `before.yaml`, which contains the objects before their deletion, and for
  `deleted.json`, which contains the returned `deleted` and `notes`.

The module returns the `deleted` objects, and `notes` about the kinds that could not be listed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ansible.module_utils.basic import AnsibleModule

from toolbox.features.kubernetes.api import readiness
from toolbox.features.kubernetes.api.connection import ApiError, Json
from toolbox.features.kubernetes.api.objects import (
    LEASE,
    MANAGED_BY,
    MANAGER,
    NAMESPACE,
    RUN_LABEL,
    Kind,
    Objects,
    Query,
)
from toolbox.features.kubernetes.lease_objects import record_of
from toolbox.features.kubernetes.library import _entry, _evidence, _settling
from toolbox.features.kubernetes.library.cluster_objects import is_ours
from toolbox.ground.model.errors import ConfigurationError, InfrastructureError
from toolbox.ground.system import filesystem
from toolbox.records.leases.leases import now

_OPTIONS: Final = {
    "run": {"type": "str"},
    "delete_namespace": {"type": "bool", "default": False},
    "force": {"type": "bool", "default": False},
    "timeout": {"type": "float", "default": 300.0},
    "directory": {"type": "path", "required": True},
}
_SYSTEM_NAMESPACES: Final = ("kube-system", "kube-public", "kube-node-lease")
_REQUIRED_VERBS: Final = frozenset({"list", "delete", "watch"})
_DELETION_CONDITIONS: Final = (
    "NamespaceContentRemaining",
    "NamespaceFinalizersRemaining",
    "NamespaceDeletionContentFailure",
)

ObjectsWithKinds = list[tuple[Kind, Json]]


def work(objects: Objects, params: Mapping[str, Any]) -> dict[str, Any]:
    """Delete the objects, and return the result of the module.

    Raises:
        ToolboxError: the deletion is refused, or some objects still exist after the timeout.
    """
    name = objects.cluster.namespace
    namespace = objects.read(NAMESPACE, None, name)
    refusal = _refusal(name, namespace, params)
    if refusal:
        raise ConfigurationError(refusal)
    if namespace is None:
        return _result(params, [], [], [f"there is no namespace {name}"])
    notes: list[str] = []
    selector = None if params["delete_namespace"] else _selector(params["run"])
    objs = list(_objects_in(objects, name, selector, notes))
    warnings = [] if params["force"] else _refuse_live_runs(objects, objs, params["run"])
    _evidence.write(Path(params["directory"]) / "before.yaml", (obj for _, obj in objs))
    if params["delete_namespace"]:
        objects.delete(NAMESPACE, None, name)
        _await_namespace(objects, name, params["timeout"])
    else:
        _delete(objects, objs, params["timeout"])
    names = [f"{kind.name} {obj['metadata']['name']}" for kind, obj in objs]
    if params["delete_namespace"]:
        names.append(f"Namespace {name}")
    if params["run"] and not names:
        warnings.append(f"nothing in namespace {name} belongs to the run {params['run']}")
    return _result(params, names, notes, warnings)


def _result(
    params: Mapping[str, Any], deleted: Sequence[str], notes: Sequence[str], warnings: Sequence[str]
) -> dict[str, Any]:
    """Write `deleted.json`, and return the result of the module."""
    filesystem.write_json(Path(params["directory"]) / "deleted.json", {"deleted": deleted, "notes": notes})
    return {"changed": bool(deleted), "deleted": deleted, "notes": notes, "warnings": warnings}


def _refusal(name: str, namespace: Json | None, params: Mapping[str, Any]) -> str:
    """Return why the deletion is refused; empty if it is allowed."""
    if name in _SYSTEM_NAMESPACES:
        return f"namespace {name} is a system namespace: objects in system namespaces are never deleted"
    if name == "default" and params["delete_namespace"]:
        return "namespace default cannot be deleted: omit --delete_namespace to delete only Topgallant's objects in it"
    if namespace is not None and not is_ours(namespace) and not params["force"]:
        return (
            f"namespace {name} was not created by Topgallant (it has no label {MANAGED_BY}={MANAGER}): "
            "use --force to delete the objects anyway"
        )
    return ""


def _refuse_live_runs(objects: Objects, objs: ObjectsWithKinds, run: str | None) -> list[str]:
    """Refuse to delete Jobs of runs that may be active.

    A run with an unexpired lease is active. If a run has no lease, the cluster does not show whether the orchestrator
    of the run is alive, so the unfinished Jobs of the run are deleted only if `run` names the run.

    Returns:
        A warning if the account may not list leases, so that active runs cannot be recognized.

    Raises:
        ConfigurationError: some runs may be active. The message names them.
    """
    unfinished = [obj["metadata"].get("labels") or {} for kind, obj in objs if _is_unfinished(kind, obj)]
    runs = {str(labels[RUN_LABEL]) for labels in unfinished if RUN_LABEL in labels}
    if not runs:
        return []
    holders = _runs_with_leases(objects)
    if alive := sorted(runs & (holders or set())):
        raise ConfigurationError(
            f"the run {', '.join(alive)} holds a lease of the cluster and has unfinished Jobs, so it is still active: "
            "wait until it ends, or use --force"
        )
    if run is None:
        raise ConfigurationError(
            f"the runs {', '.join(sorted(runs))} have unfinished Jobs and may be active: "
            "use --run to name a run that is dead, or use --force"
        )
    return [f"this account may not list leases: {run} may be active"] if holders is None else []


def _is_unfinished(kind: Kind, obj: Json) -> bool:
    return kind.name in {"Job", "JobSet"} and readiness.condition(obj, *readiness.TERMINAL) is None


def _runs_with_leases(objects: Objects) -> set[str] | None:
    """Return the runs with an unexpired lease in the namespace; None if the account may not list leases."""
    try:
        leases = list(objects.listed(Query(LEASE, objects.cluster.namespace)))
    except ApiError:
        return None
    records = [record for obj in leases if (record := record_of(obj)) is not None]
    return {record.claim.run for record in records if record.end > now()}


def _selector(run: str | None) -> str:
    return f"{MANAGED_BY}={MANAGER}" + (f",{RUN_LABEL}={run}" if run else "")


def _objects_in(
    objects: Objects, namespace: str, selector: str | None, notes: list[str]
) -> Iterator[tuple[Kind, Json]]:
    """Yield the objects of all kinds in a namespace. Append a note for each kind that the account may not list."""
    seen: set[str] = set()
    for kind in objects.kinds:
        if not kind.is_namespaced or not kind.verbs >= _REQUIRED_VERBS or kind.name == "Event":
            continue
        try:
            for obj in objects.listed(Query(kind, namespace, selector)):
                # Some kinds are in two API groups, so an object may be listed twice.
                if obj["metadata"]["uid"] not in seen:
                    seen.add(obj["metadata"]["uid"])
                    yield kind, obj
        except ApiError as error:
            notes.append(f"{kind.plural}.{kind.api_version}: {error}")


def _delete(objects: Objects, objs: Sequence[tuple[Kind, Json]], timeout: float) -> None:
    # Delete owners first, because an owner would create deleted dependents again.
    for kind, obj in sorted(objs, key=lambda pair: bool(pair[1]["metadata"].get("ownerReferences"))):
        meta = obj["metadata"]
        objects.delete(kind, meta["namespace"], meta["name"], uid=meta["uid"])
    deadline = time.monotonic() + timeout
    for kind in dict.fromkeys(kind for kind, _ in objs):
        uids = {obj["metadata"]["uid"] for obj_kind, obj in objs if obj_kind == kind}
        query, seconds = Query(kind, objects.cluster.namespace), deadline - time.monotonic()
        remaining, note = _settling.await_deletion(objects, query, seconds, uids=uids)
        if remaining:
            reasons = "; ".join(_obstacle(kind, obj) for obj in remaining)
            raise InfrastructureError(f"objects remain after {timeout:g} s: {reasons}{note}")


def _obstacle(kind: Kind, obj: Json) -> str:
    return f"{kind.name} {obj['metadata']['name']}: {_settling.deletion_obstacle(obj)}"


def _await_namespace(objects: Objects, name: str, timeout: float) -> None:
    namespaces, note = _settling.await_deletion(objects, Query(NAMESPACE, fields=f"metadata.name={name}"), timeout)
    if not namespaces:
        return
    conditions = [readiness.condition(obj, kind) for obj in namespaces for kind in _DELETION_CONDITIONS]
    texts = [str(condition["message"]) for condition in conditions if condition is not None]
    remaining = _objects_in(objects, name, None, [])
    texts += [_obstacle(kind, obj) for kind, obj in remaining if obj["metadata"].get("finalizers")]
    reasons = ("; ".join(texts) or "the cluster does not say why") + note
    raise InfrastructureError(f"namespace {name} still exists after {timeout:g} s: {reasons}")


if __name__ == "__main__":
    _entry.run(AnsibleModule, _OPTIONS, work)
