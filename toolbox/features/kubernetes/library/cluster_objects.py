"""Ansible module: apply, create or delete objects of a cluster, and wait until they are ready or deleted.

    - name: Apply the manifests
      cluster_objects:
        files: ["{{ artifact_extra_logs_dir }}/src/server.yaml"]
        wait: true
        timeout: 300

The module has these options, and `kubeconfig`, `context` and `namespace` (for manifests without a namespace):

- `state`: `applied` (server-side apply), `created` (an existing object is not changed) or `absent` (the manifests
  need only API versions, kinds and names).
- `manifests`: the manifests.
- `files`: files with manifests in YAML or JSON, and folders with such files.
- `force`: take over fields that belong to another field manager.
- `only_ours`: refuse to delete objects without Topgallant's label `app.kubernetes.io/managed-by`.
- `replace`: delete an existing object before it is applied, because some objects, such as Jobs, cannot be changed.
  The module refuses to replace objects without Topgallant's label.
- `wait`: wait until the objects are ready or deleted.
- `timeout`: the number of seconds to wait.
- `wait_for`: `ready`, or `images` to wait until each pod has all its images.
- `secret_files`, `secret_data`: files and texts with the values of a Secret, by key. The module then needs exactly one
  manifest, which must be the manifest of the Secret.
- `obsolete`: manifests of objects to delete after the other manifests have been applied.
- `keep`: a file for a copy of the manifests, without the values of Secrets. It is written before anything else, even if
  the cluster cannot be reached.
- `seen`: a file for the final state of the objects, without the values of Secrets.

The module returns the `objects`. For each object, `changed` tells whether the module changed it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import yaml
from ansible.module_utils.basic import AnsibleModule

from toolbox.features.kubernetes.api.connection import ApiError, Json
from toolbox.features.kubernetes.api.objects import MANAGED_BY, MANAGER, Kind, Objects
from toolbox.features.kubernetes.library import _entry, _evidence, _settling
from toolbox.ground.model import yaml_scalars
from toolbox.ground.model.errors import ConfigurationError, InfrastructureError
from toolbox.ground.model.text import abbreviated
from toolbox.ground.system import environ

_OPTIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "state": {"type": "str", "choices": ["applied", "created", "absent"], "default": "applied"},
    "manifests": {"type": "list", "elements": "dict", "default": []},
    "files": {"type": "list", "elements": "path", "default": []},
    "obsolete": {"type": "list", "elements": "dict", "default": []},
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
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_HANDLERS: Final = {"exec", "grpc", "httpGet", "tcpSocket"}
_BOOKKEEPING: Final = ("generation", "managedFields", "resourceVersion")
_SUFFIXES: Final = (".yaml", ".yml", ".json")


class _Loader(yaml.SafeLoader):
    """Reads dates as texts, as Kubernetes does."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
yaml_scalars.read_exponents(_Loader)


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest, and the kind and namespace of its object."""

    kind: Kind
    namespace: str | None
    body: Json

    @property
    def name(self) -> str:
        """The name of the object."""
        return str(self.body["metadata"]["name"])

    def __str__(self) -> str:
        """Return the kind, name and namespace of the object for messages."""
        where = f" of namespace {self.namespace}" if self.namespace else ""
        return f"{self.kind.name} {self.name}{where}"


def keep(params: Mapping[str, Any]) -> None:
    """Write the copy of the manifests, if one is requested.

    Raises:
        ToolboxError: a file of manifests cannot be read.
    """
    if params["keep"]:
        _evidence.write(Path(params["keep"]), [*params["manifests"], *_bodies_in_files(params)])


def work(objects: Objects, params: Mapping[str, Any]) -> dict[str, Any]:
    """Apply, create or delete the objects, and return the result of the module.

    Raises:
        ToolboxError: an object cannot be changed, or is not ready or deleted in time.
    """
    prefix = f"{params['keep']}: " if params["keep"] else ""
    bodies = [*(checked(body, prefix) for body in params["manifests"]), *_bodies_in_files(params)]
    if params["state"] == "absent":
        return _remove(objects, bodies, params)
    bodies = [with_secrets(body, params["secret_files"], params["secret_data"]) for body in bodies]
    objs: list[Json] = []
    changed: list[bool] = []
    try:
        for body in bodies:
            before, after = _ensure(objects, _manifest(objects, body), params)
            objs.append(after)
            changed.append(before is None or _content(before) != _content(after))
            if after["kind"] == "CustomResourceDefinition":  # the next manifests may need the defined kind
                _settling.ready(objects, objs[-1:], params["timeout"])
        if params["wait"]:
            settle = _settling.images if params["wait_for"] == "images" else _settling.ready
            settle(objects, objs, params["timeout"])
    finally:
        if params["seen"]:
            _evidence.write(Path(params["seen"]), _current(objects, objs))
    removed = _remove(objects, list(map(checked, params["obsolete"])), params)
    return {
        "changed": any(changed) or removed["changed"],
        "objects": [*map(_summary, objs, changed), *removed["objects"]],
    }


def _bodies_in_files(params: Mapping[str, Any]) -> Iterator[Json]:
    for path in params["files"]:
        yield from read(Path(path))


def read(path: Path) -> Iterator[Json]:
    """Yield the manifests in a file, or in all files of a folder, sorted by name. A `List` is replaced by its items.

    Raises:
        ConfigurationError: the file cannot be read or is not YAML, or the folder contains no manifests.
    """
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES)
        if not files:
            raise ConfigurationError(f"{path} has no manifests (files that end with {', '.join(_SUFFIXES)})")
        for file in files:
            yield from read(file)
        return
    try:
        documents = list(yaml.load_all(path.read_text(encoding="utf-8"), Loader=_Loader))
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from None
    for document in documents:
        bodies = document.get("items") if isinstance(document, dict) and document.get("kind") == "List" else [document]
        for body in bodies or ():
            if body is not None:
                yield checked(body, f"{path}: ")


def checked(body: Any, prefix: str = "") -> Json:
    """Return a manifest after checking that it has an API version, a kind and a name.

    Raises:
        ConfigurationError: one of these fields is missing. The message begins with `prefix`.
    """
    if not isinstance(body, dict):
        raise ConfigurationError(f"{prefix}this is not an object of Kubernetes: {abbreviated(str(body), longest=40)}")
    metadata = body.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    for field, value in {"apiVersion": body.get("apiVersion"), "kind": body.get("kind"), "metadata.name": name}.items():
        if not isinstance(value, str) or not value:
            subject = " ".join(str(part) for part in (body.get("kind") or "a manifest", name) if part)
            raise ConfigurationError(f"{prefix}{subject} has no `{field}`, or its `{field}` is not a string")
    return body


def with_secrets(body: Json, files: Mapping[str, str], data: Mapping[str, str]) -> Json:
    """Return the manifest of a Secret, with the contents of files and texts as further values, by key.

    Raises:
        ConfigurationError: a file cannot be read.
    """
    try:
        contents = {key: environ.expanded(file).read_bytes() for key, file in files.items()}
    except OSError as error:
        raise ConfigurationError(f"{error.filename} cannot be read: {error.strerror}") from None
    contents |= {key: text.encode() for key, text in data.items()}
    encoded = {key: base64.b64encode(content).decode() for key, content in contents.items()}
    return {**body, "data": {**(body.get("data") or {}), **encoded}} if encoded else body


def is_ours(obj: Json) -> bool:
    """Return whether an object has Topgallant's label."""
    return (obj["metadata"].get("labels") or {}).get(MANAGED_BY) == MANAGER


def _manifest(objects: Objects, body: Json) -> Manifest:
    kind = objects.kind(body["apiVersion"], body["kind"])
    namespace = body["metadata"].get("namespace") or objects.cluster.namespace
    return Manifest(kind, namespace if kind.is_namespaced else None, body)


def _ensure(objects: Objects, manifest: Manifest, params: Mapping[str, Any]) -> tuple[Json | None, Json]:
    """Apply or create an object, and return the old object (None if it did not exist) and the new object."""
    if params["state"] == "created":
        return _create(objects, manifest)
    before = objects.read(manifest.kind, manifest.namespace, manifest.name)
    if before is not None and params["replace"]:
        _refuse_foreign(before, manifest)
        _delete(objects, [manifest], params)
        before = None
    if before is not None and is_ours(before) and (operations := changed_probes(before, manifest.body)):
        objects.edit(manifest.kind, manifest.namespace, manifest.name, operations)
    try:
        return before, objects.apply(manifest.kind, manifest.namespace, manifest.body, force=params["force"])
    except ApiError as error:
        if error.reason == "Conflict":  # the message of the server names the other field manager
            text = f"{manifest}: {error}; to take the fields over, use --force_conflicts"
            raise InfrastructureError(text) from None
        raise _with_name(manifest, error) from None


def changed_probes(before: Json, body: Json) -> list[Json]:
    """Return a JSON Patch that removes the probes of an object whose handler changes, for example `exec` to `httpGet`.

    Without the removal, the applied object would have fields of both handlers, and the server would reject it.
    """
    new_containers = {str(each.get("name")): each for each in _containers(body)}
    return [
        {"op": "remove", "path": f"/spec/template/spec/containers/{index}/{probe}"}
        for index, container in enumerate(_containers(before))
        for probe in _PROBES
        if probe in container
        and _handler(container[probe]) != _handler(new_containers.get(str(container["name"]), {}).get(probe) or {})
    ]


def _containers(obj: Json) -> list[Json]:
    spec = obj.get("spec") or {}
    return (((spec.get("template") or {}).get("spec") or {}).get("containers")) or []


def _handler(probe: Json) -> set[str]:
    return _HANDLERS & probe.keys()


def _create(objects: Objects, manifest: Manifest) -> tuple[Json | None, Json]:
    try:
        return None, objects.create(manifest.kind, manifest.namespace, manifest.body)
    except ApiError as error:
        # If the object exists, it does not matter that the account may not create it.
        if not error.is_there and error.status != HTTPStatus.FORBIDDEN:
            raise _with_name(manifest, error) from None
        obj = objects.read(manifest.kind, manifest.namespace, manifest.name)
        if obj is None:
            raise _with_name(manifest, error) from None
        return obj, obj


def _remove(objects: Objects, bodies: Sequence[Json], params: Mapping[str, Any]) -> dict[str, Any]:
    manifests = [_manifest(objects, body) for body in reversed(bodies)]
    existing: list[tuple[Manifest, Json]] = []
    for manifest in manifests:
        obj = objects.read(manifest.kind, manifest.namespace, manifest.name)
        if obj is not None:
            if params["only_ours"]:
                _refuse_foreign(obj, manifest)
            existing.append((manifest, obj))
    _delete(objects, [manifest for manifest, _ in existing], params)
    return {"changed": bool(existing), "objects": [_summary(obj, True) for _, obj in existing]}


def _delete(objects: Objects, manifests: Sequence[Manifest], params: Mapping[str, Any]) -> None:
    for manifest in manifests:
        objects.delete(manifest.kind, manifest.namespace, manifest.name, policy="Foreground")
    if params["wait"] or params["replace"]:
        references = [(manifest.kind, manifest.namespace, manifest.name) for manifest in manifests]
        _settling.gone(objects, references, params["timeout"])


def _refuse_foreign(obj: Json, manifest: Manifest) -> None:
    if not is_ours(obj):
        raise ConfigurationError(
            f"{manifest} was not created by Topgallant (it has no label {MANAGED_BY}={MANAGER}), and was not changed: "
            "use another name"
        )


def _with_name(manifest: Manifest, error: ApiError) -> ApiError:
    text = str(error)
    text = text if manifest.name in text else f"{manifest}: {text}"
    return ApiError(text, status=error.status, reason=error.reason, cause=error.cause)


def _content(obj: Json) -> Json:
    """Return an object without its status and the metadata that the server maintains."""
    meta = {name: value for name, value in obj["metadata"].items() if name not in _BOOKKEEPING}
    return {**{part: value for part, value in obj.items() if part != "status"}, "metadata": meta}


def _current(objects: Objects, objs: Sequence[Json]) -> Iterator[Json]:
    """Yield the current state of the objects that still exist."""
    for obj in objs:
        manifest = _manifest(objects, obj)
        current = objects.read(manifest.kind, manifest.namespace, manifest.name)
        if current is not None:
            yield current


def _summary(obj: Json, changed: bool) -> dict[str, Any]:
    meta = obj["metadata"]
    return {
        "kind": obj.get("kind"),
        "namespace": meta.get("namespace"),
        "name": meta["name"],
        "uid": meta.get("uid"),
        "changed": changed,
    }


if __name__ == "__main__":
    _entry.run(AnsibleModule, _OPTIONS, work, keep=keep)
