"""The lease of a cluster: an object of the kind Lease in it (the Kubernetes API, coordination.k8s.io/v1).

What the kind has no field for is in annotations. Where it names no holder, nobody holds it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

from toolbox.kubernetes.api.connection import Cluster, Json, Refused
from toolbox.kubernetes.api.objects import LEASE, Objects, Query
from toolbox.kubernetes.api.watching import Watch
from toolbox.kubernetes.leases.leases import Claim, Record, Seen
from toolbox.model.errors import ConfigurationError, StepError

NAME: Final = "topgallant"
_PREFIX: Final = "topgallant.dev/"
_OWNER, _PURPOSE, _RUN, _FORCED, _HEARTBEAT = (
    f"{_PREFIX}{word}" for word in ("owner", "purpose", "run", "forced", "heartbeat")
)
_NONE: Final = "none"
_USUAL_SECONDS: Final = 60  # where somebody else's tool has written none
_BLIND_SECONDS: Final = 5.0  # between two looks, where we may not watch
_LONGEST_SECONDS: Final = 300.0  # likewise, where a watch tells
_PATIENCE: Final = 5.0
_CONFLICT: Final = 409
_LONG_AGO: Final = datetime.fromtimestamp(0, UTC)


class LeaseObject:
    """A lease of a cluster; see `toolbox.kubernetes.leases.leases.Lock`.

    Args:
        namespace: the one in which we work when left out.
    """

    def __init__(self, cluster: Cluster, name: str = NAME, namespace: str | None = None) -> None:
        self.label = cluster.label
        self._objects = Objects(cluster)
        self._name = name
        self._namespace = namespace or cluster.namespace
        self.key = "/".join([str(cluster.credentials.configuration.host), self._namespace, name])

    def __str__(self) -> str:
        """Return where it is."""
        return f"{self._name} in the namespace {self._namespace}"

    def read(self, patience: float) -> Seen:
        """See `Lock`."""
        found = self._objects.read(LEASE, self._namespace, self._name, patience=patience)
        if found is None:
            return Seen(None, "")
        return Seen(record_of(found), found["metadata"]["resourceVersion"])

    def write(self, record: Record | None, version: str, patience: float) -> str | None:
        """See `Lock`. What others have noted on the object stays."""
        spec, annotations = _fields(record)
        metadata: Json = {"name": self._name, "annotations": annotations}
        body: Json = {"apiVersion": LEASE.api_version, "kind": LEASE.name, "metadata": metadata, "spec": spec}
        try:
            if not version:
                metadata["annotations"] = {name: text for name, text in annotations.items() if text is not None}
                answer = self._objects.create(LEASE, self._namespace, body, patience=patience)
            else:
                metadata["resourceVersion"] = version
                answer = self._objects.merge(LEASE, self._namespace, self._name, body, patience=patience)
        except Refused as error:
            if error.status == _CONFLICT or (error.is_absent and version):
                return None
            if error.is_absent:
                raise ConfigurationError(
                    f"{self.label}: there is no namespace {self._namespace} for its lease: create it, or name "
                    "another one (`lease.namespace`, --namespace)"
                ) from None
            raise
        return str(answer["metadata"]["resourceVersion"])

    @contextmanager
    def watched(self, news: threading.Event) -> Iterator[float]:
        """See `Lock`. Where we may not watch, we look now and then."""
        query = Query(LEASE, self._namespace, fields=f"metadata.name={self._name}")
        watch = Watch(self._objects.cluster, query, _Told(news))
        try:
            watch.start(_PATIENCE)
        except StepError:
            yield _BLIND_SECONDS
            return
        try:
            yield _LONGEST_SECONDS
        finally:
            watch.close()


class _Told:
    """Whoever waits for news; see `toolbox.kubernetes.api.watching.Told`."""

    def __init__(self, news: threading.Event) -> None:
        self._news = news

    def listed(self, objects: Iterator[Json]) -> None:
        """Take what there is now."""
        for _ in objects:
            pass
        self._news.set()

    def changed(self, kind: str, found: Json) -> None:  # noqa: ARG002
        """Take a change."""
        self._news.set()

    def away(self, seconds: float, reason: str) -> None:
        """Learn that nothing is heard: it is begun again by itself."""


def record_of(found: Mapping[str, Any]) -> Record | None:
    """Return the holder that a Lease object records; None if the lease is free."""
    spec, annotations = found.get("spec") or {}, found["metadata"].get("annotations") or {}
    holder = spec.get("holderIdentity")
    if not holder:
        return None
    claim = Claim(
        holder,
        annotations.get(_OWNER, holder),
        annotations.get(_PURPOSE, ""),
        annotations.get(_RUN, ""),
        int(spec.get("leaseDurationSeconds") or _USUAL_SECONDS),
        beats=annotations.get(_HEARTBEAT) != _NONE,
    )
    renewed = _moment(spec.get("renewTime"), _LONG_AGO)
    return Record(claim, _moment(spec.get("acquireTime"), renewed), renewed, annotations.get(_FORCED, ""))


def _fields(record: Record | None) -> tuple[Json, Json]:
    """Return the fields and the annotations of the object; a merge takes away what is null."""
    if record is None:
        return {"holderIdentity": None, "acquireTime": None, "renewTime": None}, dict.fromkeys(
            (_OWNER, _PURPOSE, _RUN, _HEARTBEAT)  # who took it by force last is kept
        )
    claim = record.claim
    spec = {
        "holderIdentity": claim.holder,
        "leaseDurationSeconds": claim.ttl,
        "acquireTime": _text(record.acquired),
        "renewTime": _text(record.renewed),
    }
    return spec, {
        _OWNER: claim.owner,
        _PURPOSE: claim.purpose,
        _RUN: claim.run or None,
        _FORCED: record.forced or None,
        _HEARTBEAT: None if claim.beats else _NONE,
    }


def _text(moment: datetime) -> str:
    """Return a MicroTime, which has six digits, also where they are zeros."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _moment(text: str | None, otherwise: datetime) -> datetime:
    return datetime.fromisoformat(text) if text else otherwise
