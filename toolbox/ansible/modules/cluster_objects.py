"""Ansible module: apply, create or delete objects of a cluster, and wait until they are ready or gone.

    - name: Apply the manifests
      cluster_objects:
        files: ["{{ artifact_extra_logs_dir }}/src/server.yaml"]
        wait: true
        timeout: 300

Options, besides those of all modules for clusters (`kubeconfig`, `context`, `namespace` for manifests without one):

- `state`: `applied` (server-side apply), `created` (an existing object is left as it is) or `absent` (the manifests
  need only names).
- `manifests`: the manifests.
- `files`: files with manifests, in YAML or JSON, several per file; a folder stands for all of its files.
- `force`: take over fields that belong to another field manager.
- `only_ours`: refuse to delete or replace objects without Topgallant's label `app.kubernetes.io/managed-by`.
- `replace`: delete an existing object first, because some objects, such as a Job, cannot be changed.
- `wait`: wait until the objects are ready, or gone.
- `timeout`: the number of seconds to wait.
- `wait_for`: `ready`, or `images` to wait until each pod has all its images.
- `secret_files`, `secret_data`: data for a Secret, by key, from files and as texts. Its manifest must be the only one.
- `keep`: a file for the manifests, without the values of Secrets.
- `seen`: a file for the objects at the end, without the values of Secrets.

The module returns the `objects`, each with `changed`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from ansible.module_utils.basic import AnsibleModule  # type: ignore[import-untyped]

from toolbox.ansible.modules import _entry, _evidence, _settling
from toolbox.kubernetes.api.connection import ApiError, Json
from toolbox.kubernetes.api.objects import MANAGED_BY, MANAGER, Kind, Objects
from toolbox.model.errors import ConfigurationError, InfrastructureError
from toolbox.model.text import abbreviated
from toolbox.system import environ

_OPTIONS: Final = {
    "state": {"type": "str", "choices": ["applied", "created", "absent"], "default": "applied"},
    "manifests": {"type": "list", "elements": "dict", "default": []},
    "files": {"type": "list", "elements": "path", "default": []},
    "force": {"type": "bool", "default": False},
    "only_ours": {"type": "bool", "default": False},
    "replace": {"type": "bool", "default": False},
    "wait": {"type": "bool", "default": False},
    "wait_for": {"type": "str", "choices": ["ready", "images"], "default": "ready"},
    "timeout": {"type": "float", "default": 300.0},
    "keep": {"type": "path"},
    "seen": {"type": "path"},
    "secret_files": {"type": "dict", "default": {}, "no_log": False},
    "secret_data": {"type": "dict", "default": {}, "no_log": True},
}
_FORBIDDEN: Final = 403
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_HANDLERS: Final = {"exec", "grpc", "httpGet", "tcpSocket"}
_NOTED: Final = ("generation", "managedFields", "resourceVersion")
_SUFFIXES: Final = (".yaml", ".yml", ".json")


class _Loader(yaml.SafeLoader):
    """Reads YAML as Kubernetes does: dates are texts."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in known if tag != "tag:yaml.org,2002:timestamp"]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@dataclass(frozen=True, slots=True)
class Target:
    """A manifest, with the kind and namespace of its object."""

    kind: Kind
    namespace: str | None
    body: Json

    @property
    def name(self) -> str:
        """The name of the object."""
        return str(self.body["metadata"]["name"])

    def __str__(self) -> str:
        """Return the kind, name and namespace for messages."""
        where = f" of namespace {self.namespace}" if self.namespace else ""
        return f"{self.kind.name} {self.name}{where}"


def work(objects: Objects, given: Mapping[str, Any]) -> dict[str, Any]:
    """Carry out the module with its options.

    Raises:
        ToolboxError: an object cannot be changed, or is not ready or gone in time.
    """
    bodies = [*map(checked, given["manifests"]), *(body for path in given["files"] for body in read(Path(path)))]
    if given["keep"]:
        _evidence.write(Path(given["keep"]), bodies)
    if given["state"] == "absent":
        return _remove(objects, bodies, given)
    bodies = [with_secrets(body, given["secret_files"], given["secret_data"]) for body in bodies]
    found: list[Json] = []
    changed: list[bool] = []
    try:
        for body in bodies:
            before, after = _have(objects, _target(objects, body), given)
            found.append(after)
            changed.append(_differ(before, after))
            if after["kind"] == "CustomResourceDefinition":  # the next manifests may be of this kind
                _settling.ready(objects, found[-1:], given["timeout"])
        if given["wait"]:
            settle = _settling.images if given["wait_for"] == "images" else _settling.ready
            settle(objects, found, given["timeout"])
    finally:
        if given["seen"]:
            _evidence.write(Path(given["seen"]), _now(objects, found))
    return {"changed": any(changed), "objects": list(map(_summary, found, changed))}


def read(path: Path) -> Iterator[Json]:
    """Yield the manifests in a file, or in all files of a folder, sorted by name. Lists yield their items.

    Raises:
        ConfigurationError: the file cannot be read or is not YAML, or the folder contains no manifests.
    """
    if path.is_dir():
        chosen = sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES)
        if not chosen:
            raise ConfigurationError(f"{path}: it has no manifests (files that end with {', '.join(_SUFFIXES)})")
        for file in chosen:
            yield from read(file)
        return
    try:
        documents = list(yaml.load_all(path.read_text(encoding="utf-8"), Loader=_Loader))
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: it cannot be read: {error}") from None
    for document in documents:
        bodies = document.get("items") if isinstance(document, dict) and document.get("kind") == "List" else [document]
        for body in bodies or ():
            if body is not None:
                yield checked(body, f"{path}: ")


def checked(body: Any, where: str = "") -> Json:
    """Return a manifest after checking that it has an API version, a kind and a name.

    Raises:
        ConfigurationError: one of these is missing; the message begins with `where`.
    """
    if not isinstance(body, dict):
        raise ConfigurationError(f"{where}this is not an object of Kubernetes: {abbreviated(str(body), longest=40)}")
    metadata = body.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    for field, value in {"apiVersion": body.get("apiVersion"), "kind": body.get("kind"), "metadata.name": name}.items():
        if not isinstance(value, str) or not value:
            what = " ".join(str(part) for part in (body.get("kind") or "a manifest", name) if part)
            raise ConfigurationError(f"{where}{what} has no `{field}`, or its `{field}` is not text")
    return body


def with_secrets(body: Json, files: Mapping[str, str], data: Mapping[str, str]) -> Json:
    """Return a manifest with secret data added.

    Raises:
        ConfigurationError: a file cannot be read.
    """
    try:
        contents = {key: environ.expanded(file).read_bytes() for key, file in files.items()}
    except OSError as error:
        raise ConfigurationError(f"{error.filename}: it cannot be read: {error.strerror}") from None
    contents |= {key: text.encode() for key, text in data.items()}
    encoded = {key: base64.b64encode(content).decode() for key, content in contents.items()}
    return {**body, "data": {**(body.get("data") or {}), **encoded}} if encoded else body


def is_ours(found: Json) -> bool:
    """Return whether an object has Topgallant's label."""
    return (found["metadata"].get("labels") or {}).get(MANAGED_BY) == MANAGER


def _target(objects: Objects, body: Json) -> Target:
    kind = objects.kind(body["apiVersion"], body["kind"])
    namespace = body["metadata"].get("namespace") or objects.cluster.namespace
    return Target(kind, namespace if kind.is_namespaced else None, body)


def _have(objects: Objects, target: Target, given: Mapping[str, Any]) -> tuple[Json | None, Json]:
    """Apply or create an object, and return it before and after."""
    if given["state"] == "created":
        return _create(objects, target)
    before = objects.read(target.kind, target.namespace, target.name)
    if before is not None and given["replace"]:
        _refuse_foreign(before, target)
        _delete(objects, [target], given)
        before = None
    if before is not None and is_ours(before) and (operations := changed_probes(before, target.body)):
        objects.edit(target.kind, target.namespace, target.name, operations)
    try:
        return before, objects.apply(target.kind, target.namespace, target.body, force=given["force"])
    except ApiError as error:
        if error.reason == "Conflict":
            raise _conflict(target, error) from None
        raise _about(target, error) from None


def changed_probes(before: Json, body: Json) -> list[Json]:
    """Return a JSON Patch that removes probes whose kind changes.

    If only the new probe were applied, defaults of the old probe would remain, and the server would reject the object.
    """
    wanted = {str(each.get("name")): each for each in _containers(body)}
    return [
        {"op": "remove", "path": f"/spec/template/spec/containers/{index}/{probe}"}
        for index, container in enumerate(_containers(before))
        for probe in _PROBES
        if probe in container
        and _handler(container[probe]) != _handler(wanted.get(str(container["name"]), {}).get(probe) or {})
    ]


def _containers(found: Json) -> list[Json]:
    spec = found.get("spec") or {}
    return (((spec.get("template") or {}).get("spec") or {}).get("containers")) or []


def _handler(probe: Json) -> set[str]:
    return _HANDLERS & probe.keys()


def _create(objects: Objects, target: Target) -> tuple[Json | None, Json]:
    try:
        return None, objects.create(target.kind, target.namespace, target.body)
    except ApiError as error:
        # An account that may not create the object can still use one that exists.
        if not error.is_there and error.status != _FORBIDDEN:
            raise _about(target, error) from None
        found = objects.read(target.kind, target.namespace, target.name)
        if found is None:
            raise _about(target, error) from None
        return found, found


def _remove(objects: Objects, bodies: Sequence[Json], given: Mapping[str, Any]) -> dict[str, Any]:
    targets = [_target(objects, body) for body in reversed(bodies)]
    there: list[tuple[Target, Json]] = []
    for target in targets:
        found = objects.read(target.kind, target.namespace, target.name)
        if found is not None:
            if given["only_ours"]:
                _refuse_foreign(found, target)
            there.append((target, found))
    _delete(objects, [target for target, _ in there], given)
    return {"changed": bool(there), "objects": [_summary(found, True) for _, found in there]}


def _delete(objects: Objects, targets: Sequence[Target], given: Mapping[str, Any]) -> None:
    for target in targets:
        objects.delete(target.kind, target.namespace, target.name, policy="Foreground")
    if given["wait"] or given["replace"]:
        _settling.gone(objects, [(target.kind, target.namespace, target.name) for target in targets], given["timeout"])


def _refuse_foreign(found: Json, target: Target) -> None:
    if not is_ours(found):
        raise ConfigurationError(
            f"{target} was not created by Topgallant (it has no label {MANAGED_BY}={MANAGER}), and was not changed: "
            "use another name"
        )


def _conflict(target: Target, error: ApiError) -> InfrastructureError:
    """Return the error for fields of another field manager. The server's message names the fields and the manager."""
    return InfrastructureError(f"{target}: {error}; to take the fields over, use --force_conflicts")


def _about(target: Target, error: ApiError) -> ApiError:
    text = str(error)
    text = text if target.name in text else f"{target}: {text}"
    return ApiError(text, status=error.status, reason=error.reason, cause=error.cause)


def _differ(before: Json | None, after: Json) -> bool:
    """Return whether the object changed apart from the server's own bookkeeping."""
    return before is None or _content(before) != _content(after)


def _content(found: Json) -> Json:
    meta = {name: value for name, value in found["metadata"].items() if name not in _NOTED}
    return {**{part: value for part, value in found.items() if part != "status"}, "metadata": meta}


def _now(objects: Objects, found: Sequence[Json]) -> Iterator[Json]:
    """Yield the current state of objects, without those that are gone."""
    for each in found:
        target = _target(objects, each)
        now = objects.read(target.kind, target.namespace, target.name)
        if now is not None:
            yield now


def _summary(found: Json, changed: bool) -> dict[str, Any]:
    meta = found["metadata"]
    return {
        "kind": found.get("kind"),
        "namespace": meta.get("namespace"),
        "name": meta["name"],
        "uid": meta.get("uid"),
        "changed": changed,
    }


if __name__ == "__main__":
    _entry.run(AnsibleModule, _OPTIONS, work)
