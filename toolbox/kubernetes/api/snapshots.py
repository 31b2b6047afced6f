"""What there is in a cluster, as names and digests: enough to tell whether a run has left it as it was found.

Only kinds that can be listed, created and deleted are looked at (the discovery of the Kubernetes API): the others are
measurements and answers. What has an owner is seen through that one, with which it goes. What changes by itself
(status, versions, heartbeats, generated tokens) is no part of a digest. Digests are keyed: nobody learns a secret from
one by trying what it could be.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from toolbox.kubernetes.api.connection import Cluster, Json, Refused
from toolbox.kubernetes.api.objects import Kind, Objects, Query

_OLD_GROUP: Final = "extensions"  # the same objects as those of networking.k8s.io
_SHOWN: Final = 10
_UNSEEN: Final = {HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED}
_NEEDED: Final = {"list", "create", "delete"}
_NOISE: Final = {"Event", "Lease", "Endpoints", "EndpointSlice", "CertificateSigningRequest"}
# Kubernetes puts them into every namespace by itself.
_EVERYWHERE: Final = {("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")}
_TOKEN: Final = "kubernetes.io/service-account-token"  # noqa: S105  # the type of a Secret
_OF_NODES: Final = "node.kubernetes.io/"  # taints that tell how a node is
_DIGEST_LENGTH: Final = 16


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What there was at one time.

    Args:
        digests: by `kind/name`, or `kind/namespace/name`; of the kind, its group is a part: `Job.batch`.
        going: those of them that are being deleted.
        unseen: kinds that we may not list, or only in our own namespace, with what was not seen.
    """

    digests: Mapping[str, str]
    going: frozenset[str] = frozenset()
    unseen: tuple[str, ...] = ()

    def as_json(self) -> Json:
        """Return what is kept of it."""
        return {"unseen": list(self.unseen), "objects": dict(sorted(self.digests.items()))}

    @classmethod
    def of_json(cls, kept: Mapping[str, Any]) -> Snapshot:
        """Return what was kept."""
        return cls(kept["objects"], unseen=tuple(kept["unseen"]))

    @classmethod
    def take(cls, cluster: Cluster, key: bytes) -> Snapshot:
        """Look at a cluster.

        Args:
            key: of the digests: only those with the same key can be compared.

        Raises:
            StepError: it cannot be looked at.
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
                except Refused as error:
                    if error.status != HTTPStatus.FORBIDDEN or not kind.is_namespaced:
                        raise
                    look(kind, cluster.namespace)
                    unseen.append(f"{_label(kind)} outside of {cluster.namespace}")
            except Refused as error:
                if error.status not in _UNSEEN:
                    raise
                unseen.append(_label(kind))
        return cls(digests, frozenset(going), tuple(sorted(unseen)))


@dataclass(frozen=True, slots=True)
class Difference:
    """What is not as it was."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]

    def __bool__(self) -> bool:
        """Tell whether there is any."""
        return bool(self.added or self.removed or self.changed)

    def __str__(self) -> str:
        """Return the first of them, a line each, and how many more there are."""
        lines = [f"{what}: {name}" for what in ("added", "removed", "changed") for name in getattr(self, what)]
        more = len(lines) - _SHOWN
        return "\n".join([*lines[:_SHOWN], *([f"and {more} more"] if more > 0 else [])])

    @classmethod
    def between(cls, before: Snapshot, after: Snapshot) -> Difference:
        """Compare two snapshots. What only one of them could see is no difference."""
        unseen = {*before.unseen, *after.unseen}
        was = {name: digest for name, digest in before.digests.items() if name.partition("/")[0] not in unseen}
        now = {name: digest for name, digest in after.digests.items() if name.partition("/")[0] not in unseen}
        return cls(
            tuple(sorted(now.keys() - was.keys())),
            tuple(sorted(was.keys() - now.keys())),
            tuple(sorted(name for name in was.keys() & now.keys() if was[name] != now[name])),
        )


def _counts(kind: Kind) -> bool:
    """Tell whether objects of a kind are looked at."""
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
    """Return the digest of what somebody wants of an object, without what becomes of it."""
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
