"""Ansible module: have objects be in a cluster as manifests say, or not at all, and wait until they are.

    - name: Apply the manifests
      cluster_objects:
        files: ["{{ artifact_extra_logs_dir }}/src/server.yaml"]
        wait: true
        timeout: 300

Options, besides those of every module of ours (`kubeconfig`, `context`, `namespace`: of what names none):

- `state`: `applied` (server-side), `created` (where there is none, and left as it is where there is one) or `absent`
  (only the names of the manifests count).
- `manifests`: the objects, and `files` of them (YAML or JSON, several in one; of a folder, all that it holds).
- `force`: fields that somebody else has set become ours.
- `only_ours`: what is `absent`, or `replaced`, has to carry our label `app.kubernetes.io/managed-by`.
- `replace`: an object that is there is removed first: a Job cannot be changed.
- `wait`, `timeout`: until they are ready, or gone; in seconds.
- `wait_for`: `ready`, or `images`: until each pod has all its images.
- `secret_files`, `secret_data`: data of the one manifest, a Secret, by key: files, and texts.
- `keep`: a file for what was applied, and `seen` for what there is then; no value of a Secret is in them.

It returns `objects`: what there is now, each with `changed`.
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
from toolbox.kubernetes.api.connection import Json, Refused
from toolbox.kubernetes.api.objects import Kind, Objects
from toolbox.model.errors import ConfigurationError, InfrastructureError
from toolbox.model.text import shown
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
OWNER: Final = ("app.kubernetes.io/managed-by", "topgallant")
_FORBIDDEN: Final = 403
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_HANDLERS: Final = {"exec", "grpc", "httpGet", "tcpSocket"}
_NOTED: Final = ("generation", "managedFields", "resourceVersion")
_SUFFIXES: Final = (".yaml", ".yml", ".json")


class _Loader(yaml.SafeLoader):
    """Reads YAML as Kubernetes does: a date is a text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in known if tag != "tag:yaml.org,2002:timestamp"]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@dataclass(frozen=True, slots=True)
class Target:
    """An object that is meant: its manifest, and where it goes."""

    kind: Kind
    namespace: str | None
    body: Json

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.body["metadata"]["name"])

    def __str__(self) -> str:
        """Return what messages call it."""
        where = f" of namespace {self.namespace}" if self.namespace else ""
        return f"{self.kind.name} {self.name}{where}"


def work(objects: Objects, given: Mapping[str, Any]) -> dict[str, Any]:
    """Do what the options say.

    Raises:
        ToolboxError: it cannot be done, or was not in time.
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
            if after["kind"] == "CustomResourceDefinition":  # what comes after it may be of its kind
                _settling.ready(objects, found[-1:], given["timeout"])
        if given["wait"]:
            settle = _settling.images if given["wait_for"] == "images" else _settling.ready
            settle(objects, found, given["timeout"])
    finally:
        if given["seen"]:
            _evidence.write(Path(given["seen"]), _now(objects, found))
    return {"changed": any(changed), "objects": list(map(_summary, found, changed))}


def read(path: Path) -> Iterator[Json]:
    """Yield the manifests of a file, those of lists one by one; of a folder, of its files by name.

    Raises:
        ConfigurationError: it cannot be read, holds nothing, or is no YAML.
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
    """Return a manifest that names what it is.

    Raises:
        ConfigurationError: it does not; the message begins with where it was found.
    """
    if not isinstance(body, dict):
        raise ConfigurationError(f"{where}this is not an object of Kubernetes: {shown(str(body), longest=40)}")
    metadata = body.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    for field, value in {"apiVersion": body.get("apiVersion"), "kind": body.get("kind"), "metadata.name": name}.items():
        if not isinstance(value, str) or not value:
            what = " ".join(str(part) for part in (body.get("kind") or "a manifest", name) if part)
            raise ConfigurationError(f"{where}{what} has no `{field}`, or its `{field}` is not text")
    return body


def with_secrets(body: Json, files: Mapping[str, str], data: Mapping[str, str]) -> Json:
    """Return a manifest with its secret data.

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
    """Whether an object carries our label."""
    return (found["metadata"].get("labels") or {}).get(OWNER[0]) == OWNER[1]


def _target(objects: Objects, body: Json) -> Target:
    kind = objects.kind(body["apiVersion"], body["kind"])
    namespace = body["metadata"].get("namespace") or objects.cluster.namespace
    return Target(kind, namespace if kind.is_namespaced else None, body)


def _have(objects: Objects, target: Target, given: Mapping[str, Any]) -> tuple[Json | None, Json]:
    """Have an object in the cluster, and return it before and after."""
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
    except Refused as error:
        if error.reason == "Conflict":
            raise _conflict(target, error) from None
        raise _about(target, error) from None


def changed_probes(before: Json, body: Json) -> list[Json]:
    """Return what removes the probes of containers that get a probe of another kind, as a JSON Patch.

    To apply the new probe alone leaves the defaults of the old one beside it, which the server refuses.
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
    except Refused as error:
        # Who may not create it may still use one that somebody has made for them.
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
            f"{target} was not created by Topgallant (it has no label {'='.join(OWNER)}), and was not changed: "
            "use another name"
        )


def _conflict(target: Target, error: Refused) -> InfrastructureError:
    """Return the error of fields that somebody else has set; the server names the fields and who that is."""
    return InfrastructureError(f"{target}: {error}; to take the fields over, use --force_conflicts")


def _about(target: Target, error: Refused) -> Refused:
    text = str(error)
    text = text if target.name in text else f"{target}: {text}"
    return Refused(text, status=error.status, reason=error.reason, cause=error.cause)


def _differ(before: Json | None, after: Json) -> bool:
    """Whether more has changed than what the server notes for itself."""
    return before is None or _content(before) != _content(after)


def _content(found: Json) -> Json:
    meta = {name: value for name, value in found["metadata"].items() if name not in _NOTED}
    return {**{part: value for part, value in found.items() if part != "status"}, "metadata": meta}


def _now(objects: Objects, found: Sequence[Json]) -> Iterator[Json]:
    """Yield objects as they are by now."""
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
