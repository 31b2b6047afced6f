"""Records the objects of a cluster as names and digests, to find out whether a run left the cluster as it was.

A snapshot contains only kinds that can be listed, created and deleted: other kinds are measurements or responses.
Objects that have an owner are left out, because they are deleted with their owner. Digests leave out fields that
change by themselves: status, versions, heartbeats, generated tokens. Digests are keyed, so that a secret cannot be
guessed from its digest.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from toolbox.kubernetes.api.connection import ApiError, Cluster, Json
from toolbox.kubernetes.api.objects import Kind, Objects, Query

_OLD_GROUP: Final = "extensions"  # repeats the objects of networking.k8s.io
_SHOWN: Final = 10
_UNSEEN: Final = {HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED}
_NEEDED: Final = {"list", "create", "delete"}
_NOISE: Final = {"Event", "Lease", "Endpoints", "EndpointSlice", "CertificateSigningRequest"}
# Kubernetes creates these objects in every namespace.
_EVERYWHERE: Final = {("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")}
_TOKEN: Final = "kubernetes.io/service-account-token"  # noqa: S105  # the type of a Secret
_OF_NODES: Final = "node.kubernetes.io/"  # prefix of the taints that show the condition of a node
_DIGEST_LENGTH: Final = 16


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The objects of a cluster at one time.

    Args:
        digests: the digests by `kind/name` or `kind/namespace/name`; the kind includes its group: `Job.batch`.
        going: the names of the objects that are being deleted.
        unseen: the kinds that the account may not list, and those that it may list in its own namespace only.
    """

    digests: Mapping[str, str]
    going: frozenset[str] = frozenset()
    unseen: tuple[str, ...] = ()

    def as_json(self) -> Json:
        """Return the snapshot as JSON."""
        return {"unseen": list(self.unseen), "objects": dict(sorted(self.digests.items()))}

    @classmethod
    def of_json(cls, kept: Mapping[str, Any]) -> Snapshot:
        """Return a snapshot from the result of `as_json`."""
        return cls(kept["objects"], unseen=tuple(kept["unseen"]))

    @classmethod
    def take(cls, cluster: Cluster, key: bytes) -> Snapshot:
        """Take a snapshot of a cluster.

        Args:
            key: the key of the digests. Only snapshots with the same key can be compared.

        Raises:
            StepError: the cluster cannot be read.
        """
        objects = Objects(cluster)
        digests: dict[str, str] = {}
        going, unseen = set(), []

        def look(kind: Kind, namespace: str | None) -> None:
            for found in objects.listed(Query(kind, namespace)):
                if not _is_noise(kind, found):
                    name = _name(kind, found)
                    digests[name] = _digest(kind.name, found, key)
                    if "deletionTimestamp" in found["metadata"]:
                        going.add(name)

        for kind in filter(_counts, objects.kinds):
            try:
                try:
                    look(kind, None)
                except ApiError as error:
                    if error.status != HTTPStatus.FORBIDDEN or not kind.is_namespaced:
                        raise
                    look(kind, cluster.namespace)
                    unseen.append(f"{_label(kind)} outside of {cluster.namespace}")
            except ApiError as error:
                if error.status not in _UNSEEN:
                    raise
                unseen.append(_label(kind))
        return cls(digests, frozenset(going), tuple(sorted(unseen)))


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
        """Return the first differences, one per line, and the number of the others."""
        lines = [f"{what}: {name}" for what in ("added", "removed", "changed") for name in getattr(self, what)]
        more = len(lines) - _SHOWN
        return "\n".join([*lines[:_SHOWN], *([f"and {more} more"] if more > 0 else [])])

    @classmethod
    def between(cls, before: Snapshot, after: Snapshot) -> Difference:
        """Compare two snapshots, except for kinds that either snapshot could not see."""
        unseen = {*before.unseen, *after.unseen}
        was = {name: digest for name, digest in before.digests.items() if name.partition("/")[0] not in unseen}
        now = {name: digest for name, digest in after.digests.items() if name.partition("/")[0] not in unseen}
        return cls(
            tuple(sorted(now.keys() - was.keys())),
            tuple(sorted(was.keys() - now.keys())),
            tuple(sorted(name for name in was.keys() & now.keys() if was[name] != now[name])),
        )


def _counts(kind: Kind) -> bool:
    """Return whether snapshots include objects of a kind."""
    return _NEEDED.issubset(kind.verbs) and kind.name not in _NOISE and kind.group != _OLD_GROUP


def _label(kind: Kind) -> str:
    return f"{kind.name}.{kind.group}" if kind.group else kind.name


def _name(kind: Kind, found: Json) -> str:
    metadata = found["metadata"]
    return "/".join(filter(None, (_label(kind), metadata.get("namespace"), metadata["name"])))


def _is_noise(kind: Kind, found: Json) -> bool:
    metadata = found["metadata"]
    is_token = kind.name == "Secret" and found.get("type") == _TOKEN
    return bool(metadata.get("ownerReferences")) or is_token or (kind.name, metadata["name"]) in _EVERYWHERE


def _digest(kind: str, found: Json, key: bytes) -> str:
    """Return the digest of the desired state of an object, without its status."""
    content = {name: value for name, value in found.items() if name not in ("apiVersion", "kind", "metadata", "status")}
    labels = found["metadata"].get("labels") or {}
    if kind == "Node":
        spec = content["spec"]
        taints = [taint for taint in spec.get("taints") or () if not taint["key"].startswith(_OF_NODES)]
        content = {"taints": taints, "unschedulable": bool(spec.get("unschedulable"))}
    elif kind == "ServiceAccount":
        content.pop("secrets", None)  # its generated tokens
    text = json.dumps([labels, content], sort_keys=True)
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()[:_DIGEST_LENGTH]
