"""Records the objects of a cluster as names and digests, to find out whether a run has changed the cluster.

A snapshot contains only objects of kinds that can be listed, created and deleted. Objects that have an owner are left
out, because they are deleted with their owner. Digests don't cover the fields that Kubernetes changes: status,
versions, heartbeats and generated tokens. Digests are keyed hashes, so that a secret cannot be guessed from its digest.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from toolbox.features.kubernetes.api.connection import ApiError, Cluster, Json
from toolbox.features.kubernetes.api.objects import Kind, Objects, Query
from toolbox.ground.model.text import first_of

_OLD_GROUP: Final = "extensions"  # an old API group that contains the same objects as networking.k8s.io
_MAX_LINES: Final = 10
_UNLISTABLE: Final = {HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED}
_REQUIRED_VERBS: Final = {"list", "create", "delete"}
_IGNORED_KINDS: Final = {"Event", "Lease", "Endpoints", "EndpointSlice", "CertificateSigningRequest"}
# Kubernetes creates these objects in every namespace.
_DEFAULT_OBJECTS: Final = {("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")}
_TOKEN_TYPE: Final = "kubernetes.io/service-account-token"  # noqa: S105  # the type of the Secrets with generated tokens
_NODE_TAINT_PREFIX: Final = "node.kubernetes.io/"  # Kubernetes sets these taints for conditions of nodes
_DIGEST_LENGTH: Final = 16


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The objects of a cluster at one time.

    Args:
        digests: the digests of the objects by `KIND/NAME` or `KIND/NAMESPACE/NAME`, where KIND includes the API group,
            such as `Job.batch`.
        deleted: the keys in `digests` of the objects that are being deleted.
        unseen: the kinds that the account may not list, and the kinds that it may list in only one namespace.
    """

    digests: Mapping[str, str]
    deleted: frozenset[str] = frozenset()
    unseen: tuple[str, ...] = ()

    def as_json(self) -> Json:
        """Return the snapshot as JSON."""
        return {"unseen": list(self.unseen), "objects": dict(sorted(self.digests.items()))}

    @classmethod
    def of_json(cls, content: Mapping[str, Any]) -> Snapshot:
        """Return the snapshot that `as_json` returned as JSON."""
        return cls(content["objects"], unseen=tuple(content["unseen"]))

    @classmethod
    def take(cls, cluster: Cluster, key: bytes) -> Snapshot:
        """Take a snapshot of a cluster.

        Args:
            key: the key of the hashes. Only snapshots with the same key can be compared.

        Raises:
            StepError: the cluster cannot be read.
        """
        objects = Objects(cluster)
        digests: dict[str, str] = {}
        deleted, unseen = set(), []

        def add_objects(kind: Kind, namespace: str | None) -> None:
            for obj in objects.listed(Query(kind, namespace)):
                if not _is_ignored(kind, obj):
                    name = _name(kind, obj)
                    digests[name] = _digest(kind.name, obj, key)
                    if "deletionTimestamp" in obj["metadata"]:
                        deleted.add(name)

        for kind in filter(_is_recorded, objects.kinds):
            try:
                try:
                    add_objects(kind, None)
                except ApiError as error:
                    if error.status != HTTPStatus.FORBIDDEN or not kind.is_namespaced:
                        raise
                    add_objects(kind, cluster.namespace)
                    unseen.append(f"{_label(kind)} outside of {cluster.namespace}")
            except ApiError as error:
                if error.status not in _UNLISTABLE:
                    raise
                unseen.append(_label(kind))
        return cls(digests, frozenset(deleted), tuple(sorted(unseen)))


@dataclass(frozen=True, slots=True)
class Difference:
    """The differences between two snapshots, as names of objects."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]

    def __bool__(self) -> bool:
        """Return whether there are any differences."""
        return bool(self.added or self.removed or self.changed)

    def __str__(self) -> str:
        """Return the first differences, one per line, and the number of further differences."""
        lines = [f"{change}: {name}" for change in ("added", "removed", "changed") for name in getattr(self, change)]
        return "\n".join(first_of(lines, _MAX_LINES))

    @classmethod
    def between(cls, before: Snapshot, after: Snapshot) -> Difference:
        """Compare two snapshots, except for the kinds that are `unseen` in one of them."""
        unseen = {*before.unseen, *after.unseen}
        was = {name: digest for name, digest in before.digests.items() if name.partition("/")[0] not in unseen}
        now = {name: digest for name, digest in after.digests.items() if name.partition("/")[0] not in unseen}
        return cls(
            tuple(sorted(now.keys() - was.keys())),
            tuple(sorted(was.keys() - now.keys())),
            tuple(sorted(name for name in was.keys() & now.keys() if was[name] != now[name])),
        )


def _is_recorded(kind: Kind) -> bool:
    """Return whether snapshots include objects of a kind."""
    return _REQUIRED_VERBS.issubset(kind.verbs) and kind.name not in _IGNORED_KINDS and kind.group != _OLD_GROUP


def _label(kind: Kind) -> str:
    return f"{kind.name}.{kind.group}" if kind.group else kind.name


def _name(kind: Kind, obj: Json) -> str:
    metadata = obj["metadata"]
    return "/".join(filter(None, (_label(kind), metadata.get("namespace"), metadata["name"])))


def _is_ignored(kind: Kind, obj: Json) -> bool:
    metadata = obj["metadata"]
    is_token = kind.name == "Secret" and obj.get("type") == _TOKEN_TYPE
    return bool(metadata.get("ownerReferences")) or is_token or (kind.name, metadata["name"]) in _DEFAULT_OBJECTS


def _digest(kind: str, obj: Json, key: bytes) -> str:
    """Return the digest of the labels and the desired state of an object."""
    content = {name: value for name, value in obj.items() if name not in ("apiVersion", "kind", "metadata", "status")}
    labels = obj["metadata"].get("labels") or {}
    if kind == "Node":
        spec = content["spec"]
        taints = [taint for taint in spec.get("taints") or () if not taint["key"].startswith(_NODE_TAINT_PREFIX)]
        content = {"taints": taints, "unschedulable": bool(spec.get("unschedulable"))}
    elif kind == "ServiceAccount":
        content.pop("secrets", None)  # these are generated tokens
    text = json.dumps([labels, content], sort_keys=True)
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()[:_DIGEST_LENGTH]
