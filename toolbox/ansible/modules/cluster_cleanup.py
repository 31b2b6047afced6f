"""Ansible module: delete Topgallant's objects in a namespace, or the whole namespace, and wait until they are gone.

    - name: Delete the objects that a run has left
      cluster_cleanup:
        namespace: tests
        run: 20261121-101500
        directory: "{{ artifact_extra_logs_dir }}/artifacts"

Options, besides those of all modules for clusters (`kubeconfig`, `context`, `namespace`):

- `run`: delete only the objects of this run; by default, all objects with Topgallant's label
  `app.kubernetes.io/managed-by`.
- `delete_namespace`: delete the namespace and all objects in it.
- `force`: allow namespaces that Topgallant did not create, and Jobs of runs that may be active. System namespaces are
  always refused.
- `timeout`: the number of seconds to wait until the objects are gone.
- `directory`: the directory for `before.yaml`, with the objects before their deletion.

The module returns the `deleted` objects, and as `notes` the kinds that could not be listed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ansible.module_utils.basic import AnsibleModule  # type: ignore[import-untyped]

from toolbox.ansible.modules import _entry, _evidence, _settling
from toolbox.ansible.modules.cluster_objects import is_ours
from toolbox.kubernetes.api import readiness
from toolbox.kubernetes.api.connection import ApiError, Json
from toolbox.kubernetes.api.objects import LEASE, MANAGED_BY, MANAGER, NAMESPACE, RUN_LABEL, Kind, Objects, Query
from toolbox.kubernetes.api.waiting import watching_all
from toolbox.kubernetes.lease_objects import record_of
from toolbox.leases.leases import now
from toolbox.model.errors import ConfigurationError, InfrastructureError

_OPTIONS: Final = {
    "run": {"type": "str"},
    "delete_namespace": {"type": "bool", "default": False},
    "force": {"type": "bool", "default": False},
    "timeout": {"type": "float", "default": 300.0},
    "directory": {"type": "path", "required": True},
}
_OF_THE_SYSTEM: Final = ("kube-system", "kube-public", "kube-node-lease")
_NEEDED: Final = frozenset({"list", "delete", "watch"})
_HOLDING: Final = ("NamespaceContentRemaining", "NamespaceFinalizersRemaining", "NamespaceDeletionContentFailure")

Found = list[tuple[Kind, Json]]


def work(objects: Objects, given: Mapping[str, Any]) -> dict[str, Any]:
    """Carry out the module with its options.

    Raises:
        ToolboxError: the deletion is refused, or some objects are not gone in time.
    """
    name = objects.cluster.namespace
    kind = NAMESPACE
    namespace = objects.read(kind, None, name)
    refusal = _refusal(name, namespace, given)
    if refusal:
        raise ConfigurationError(refusal)
    if namespace is None:
        return {"changed": False, "deleted": [], "notes": [], "warnings": [f"there is no namespace {name}"]}
    notes: list[str] = []
    selector = None if given["delete_namespace"] else _selector(given["run"])
    found = list(_found(objects, name, selector, notes))
    warnings = [] if given["force"] else _refuse_live_runs(objects, found, given["run"])
    _evidence.write(Path(given["directory"]) / "before.yaml", (each for _, each in found))
    if given["delete_namespace"]:
        objects.delete(kind, None, name)
        _await_namespace(objects, kind, name, given["timeout"])
    else:
        _delete(objects, found, given["timeout"])
    names = [f"{of.name} {each['metadata']['name']}" for of, each in found]
    if given["delete_namespace"]:
        names.append(f"Namespace {name}")
    if given["run"] and not names:
        warnings.append(f"nothing in namespace {name} belongs to the run {given['run']}")
    return {"changed": bool(names), "deleted": names, "notes": notes, "warnings": warnings}


def _refusal(name: str, namespace: Json | None, given: Mapping[str, Any]) -> str:
    """Return why the deletion is refused; empty if it is allowed."""
    if name in _OF_THE_SYSTEM:
        return f"namespace {name} is a system namespace: objects in it are never deleted"
    if name == "default" and given["delete_namespace"]:
        return "namespace default cannot be deleted: omit --delete_namespace to delete only our objects in it"
    if namespace is not None and not is_ours(namespace) and not given["force"]:
        return (
            f"namespace {name} was not created by Topgallant (it has no label {MANAGED_BY}={MANAGER}): "
            "use --force to delete the objects anyway"
        )
    return ""


def _refuse_live_runs(objects: Objects, found: Found, named: str | None) -> list[str]:
    """Refuse to delete Jobs of runs that may be active.

    A run with an unexpired lease is active. Without a lease, nothing in the cluster shows whether the orchestrator of
    a run is alive. Unfinished Jobs of such a run are deleted only if `run` names it.

    Returns:
        A warning if the account may not list leases, so that active runs cannot be recognized.

    Raises:
        ConfigurationError: some runs may be active; the message names them.
    """
    unfinished = [each["metadata"].get("labels") or {} for kind, each in found if _is_unfinished(kind, each)]
    runs = {str(labels[RUN_LABEL]) for labels in unfinished if RUN_LABEL in labels}
    if not runs:
        return []
    holders = _runs_with_leases(objects)
    if alive := sorted(runs & (holders or set())):
        raise ConfigurationError(
            f"the run {', '.join(alive)} holds a lease of the cluster and has unfinished Jobs, so it is still active: "
            "wait until it ends, or use --force"
        )
    if named is None:
        raise ConfigurationError(
            f"the runs {', '.join(sorted(runs))} have unfinished Jobs and may be active: "
            "use --run to name a run that is dead, or use --force"
        )
    return [f"this account may not list leases: {named} may be active"] if holders is None else []


def _is_unfinished(kind: Kind, found: Json) -> bool:
    ends = (readiness.condition(found, end) for end in ("Complete", "Failed", "Completed"))
    return kind.name in {"Job", "JobSet"} and not any(ends)


def _runs_with_leases(objects: Objects) -> set[str] | None:
    """Return the runs that hold an unexpired lease in the namespace; None if the account may not list leases."""
    try:
        leases = list(objects.listed(Query(LEASE, objects.cluster.namespace)))
    except ApiError:
        return None
    records = [record for found in leases if (record := record_of(found)) is not None]
    return {record.claim.run for record in records if record.end > now()}


def _selector(run: str | None) -> str:
    return f"{MANAGED_BY}={MANAGER}" + (f",{RUN_LABEL}={run}" if run else "")


def _found(objects: Objects, namespace: str, selector: str | None, notes: list[str]) -> Iterator[tuple[Kind, Json]]:
    """Yield the objects of all kinds in a namespace. Add a note for each kind that may not be listed."""
    seen: set[str] = set()
    for kind in objects.kinds:
        if not kind.is_namespaced or not kind.verbs >= _NEEDED or kind.name == "Event":
            continue
        try:
            for found in objects.listed(Query(kind, namespace, selector)):
                # Some kinds are in two API groups.
                if found["metadata"]["uid"] not in seen:
                    seen.add(found["metadata"]["uid"])
                    yield kind, found
        except ApiError as error:
            notes.append(f"{kind.plural}.{kind.api_version}: {error}")


def _delete(objects: Objects, found: Sequence[tuple[Kind, Json]], timeout: float) -> None:
    # Delete owners first: an owner that still exists would create its dependents again.
    for kind, each in sorted(found, key=lambda pair: bool(pair[1]["metadata"].get("ownerReferences"))):
        meta = each["metadata"]
        objects.delete(kind, meta["namespace"], meta["name"], uid=meta["uid"])
    deadline = time.monotonic() + timeout
    for kind in dict.fromkeys(kind for kind, _ in found):
        uids = {each["metadata"]["uid"] for of, each in found if of == kind}
        _await(objects, kind, str(found[0][1]["metadata"]["namespace"]), uids, deadline, timeout)


def _await(objects: Objects, kind: Kind, namespace: str, uids: set[str], deadline: float, timeout: float) -> None:
    with watching_all(objects, Query(kind, namespace)) as view:
        (watched_objects,) = view.watched

        def left() -> list[Json]:
            return [each for each in watched_objects.objects if each["metadata"]["uid"] in uids]

        if view.until(lambda: None if left() else True, deadline - time.monotonic()) is None:
            held = "; ".join(f"{kind.name} {each['metadata']['name']}: {_settling.held_by(each)}" for each in left())
            raise InfrastructureError(f"objects remain after {timeout:g} s: {held}{_settling.after(view)}")


def _await_namespace(objects: Objects, kind: Kind, name: str, timeout: float) -> None:
    with watching_all(objects, Query(kind, fields=f"metadata.name={name}")) as view:
        (watched_objects,) = view.watched
        if view.until(lambda: None if watched_objects.objects else True, timeout) is not None:
            return
        said = [readiness.condition(found, each) for found in watched_objects.objects for each in _HOLDING]
        texts = [str(each["message"]) for each in said if each is not None]
        texts += [
            f"{of.name} {each['metadata']['name']}: {_settling.held_by(each)}"
            for of, each in _found(objects, name, None, [])
            if each["metadata"].get("finalizers")
        ]
        held = "; ".join(texts) or "the cluster does not say why"
        raise InfrastructureError(f"namespace {name} still exists after {timeout:g} s: {held}{_settling.after(view)}")


if __name__ == "__main__":
    _entry.run(AnsibleModule, _OPTIONS, work)
