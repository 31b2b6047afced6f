"""Objects of a cluster that are on the ledger of remote resources: the owner objects of runs, and namespaces.

The labels of such an object name its owner and its expiry. An object without the labels of its owner is never deleted.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from datetime import datetime, timedelta
from typing import Final

from pydantic import BaseModel, ConfigDict

from toolbox.features.kubernetes.api.connection import ApiError, Cluster, Json
from toolbox.features.kubernetes.api.objects import (
    CONFIG_MAP,
    MANAGED_BY,
    MANAGER,
    NAMESPACE,
    RUN_LABEL,
    Kind,
    Objects,
    Query,
)
from toolbox.ground.model import backoff, resources
from toolbox.ground.model.clusters import Access
from toolbox.ground.model.errors import ConfigurationError, StepError
from toolbox.ground.model.resources import OpenResource, Owner, Resource, ResourceLedger
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.ground.system import cancellation

PREFIX: Final = "topgallant.dev/"
TTL: Final = 7 * 86400.0  # the longest time in seconds that a run should take
_KINDS: Final = {CONFIG_MAP: "kubernetes_owner", NAMESPACE: "kubernetes_namespace"}
_DELETE_SECONDS: Final = 300.0
_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 5.0


class Deletion(BaseModel):
    """How to delete an object: the fields of `toolbox.ground.model.resources.Resource.deletion`.

    Args:
        server: the URL of the API server, so that another cluster is never mistaken for this one.
        kubeconfig: None for the service account of a pod.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    server: str
    name: str
    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None

    def connect(self) -> Cluster:
        """Return a connection to the cluster.

        Raises:
            ConfigurationError: the kubeconfig is missing, or describes another cluster.
        """
        cluster = Cluster(Access(self.kubeconfig, self.context, self.namespace))
        if (server := _server(cluster)) != self.server:
            cluster.close()
            raise ConfigurationError(f"{self.kubeconfig} now describes the cluster {server}, not {self.server}")
        return cluster

    def delete_object(self, kind: Kind, owner: Owner) -> None:
        """Delete the object if its labels are those of the owner, and return when the object no longer exists.

        Raises:
            ToolboxError: the object may still exist, or belongs to another owner.
        """
        with closing(self.connect()) as cluster:
            delete(cluster, kind, self.name, owner)


def resource(cluster: Cluster, kind: Kind, name: str, *, namespace: str | None = None, keep: bool = False) -> Resource:
    """Return the ledger's description of an object, which need not exist yet.

    Args:
        kind: `CONFIG_MAP` or `NAMESPACE`. An object of another kind cannot be on the ledger.
        namespace: the namespace of the object; None for the namespace of the connection.
    """
    source, server = cluster.credentials.source, _server(cluster)
    namespace = (namespace or cluster.namespace) if kind.is_namespaced else None
    deletion = Deletion(
        server=server, name=name, kubeconfig=source.kubeconfig, context=source.context, namespace=namespace
    )
    flags = {"kubeconfig": source.kubeconfig, "context": source.context, "namespace": namespace}
    words = [f"--{flag}={value}" for flag, value in flags.items() if value is not None]
    command = shlex.join(["kubectl", *words, "delete", kind.name.lower(), name])
    return Resource(_KINDS[kind], f"{server}{kind.path(namespace, name)}", deletion.model_dump(), TTL, command, keep)


def labels(owner: Owner, ttl: float | None = None) -> dict[str, str]:
    """Return the labels of an object on the ledger.

    Args:
        ttl: the time until any user may delete the object with `resources reap`, in seconds; None for an object that is
            deleted with its owner object.
    """
    return {MANAGED_BY: MANAGER, **owner.labels(ttl, prefix=PREFIX)}


def is_owned(obj: Json, owner: Owner) -> bool:
    """Return whether the labels of an object are those of an owner."""
    found = _labels_of(obj)
    return found.get(MANAGED_BY) == MANAGER and owner.owns(found, prefix=PREFIX)


def delete(cluster: Cluster, kind: Kind, name: str, owner: Owner) -> None:
    """Delete an object if its labels are those of the owner, and return when the object no longer exists.

    Raises:
        StepError: the object may still exist, or belongs to another owner.
    """
    objects, namespace = Objects(cluster), cluster.namespace if kind.is_namespaced else None
    deadline, tries = time.monotonic() + _DELETE_SECONDS, 0
    uid: str | None = None
    while (obj := objects.read(kind, namespace, name)) is not None:
        metadata = obj["metadata"]
        if uid is not None and metadata.get("uid") != uid:
            return  # another object now has the name
        if not is_owned(obj, owner):
            message = (
                f"{cluster.label}: {kind.name} {name} does not have the labels of its owner, so it was not deleted"
            )
            raise StepError(message, verdict=Verdict.ERROR, cause=Cause.CONFIGURATION)
        if uid is None:
            uid = str(metadata.get("uid"))
            objects.delete(kind, namespace, name, uid=uid)
        if time.monotonic() > deadline:
            raise StepError(f"{cluster.label}: {kind.name} {name} is still being deleted after {_DELETE_SECONDS:.0f} s")
        cancellation.current().sleep(backoff.pause(tries, first=_FIRST_PAUSE, most=_LONGEST_PAUSE) if tries else 0)
        tries += 1


def create_namespace(cluster: Cluster, ledger: ResourceLedger, name: str, *, keep: bool) -> None:
    """Create a namespace, and record it on the ledger. A namespace that others have created is not changed.

    If the account may not create namespaces, the function does nothing.

    Raises:
        ToolboxError: the ledger cannot be written, or the cluster does not answer.
    """
    objects, planned = Objects(cluster), resource(cluster, NAMESPACE, name, keep=keep)
    metadata = {"name": name, "labels": labels(ledger.owner, TTL)}
    try:
        obj = objects.read(NAMESPACE, None, name)
        if obj is None:
            ledger.plan(planned)
            obj = objects.create(NAMESPACE, None, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    except ApiError as error:
        if not error.is_there:
            ledger.mark_deleted(planned)
            return
        obj = objects.read(NAMESPACE, None, name)
    if obj is not None and is_owned(obj, ledger.owner):
        ledger.plan(planned)
        ledger.mark_created(planned)
    else:
        ledger.mark_deleted(planned)


def find(cluster: Cluster) -> Iterator[OpenResource]:
    """Yield the owner objects and namespaces that have the labels of Topgallant, of any owner.

    If the account may not list ConfigMaps in all namespaces, only the namespace of the connection is searched.

    Raises:
        StepError: the cluster does not answer, or the account may not list ConfigMaps.
    """
    objects, selector = Objects(cluster), f"{MANAGED_BY}={MANAGER},{RUN_LABEL}"
    try:
        config_maps = list(objects.listed(Query(CONFIG_MAP, None, selector)))
    except ApiError:
        config_maps = list(objects.listed(Query(CONFIG_MAP, cluster.namespace, selector)))
    try:
        namespaces = list(objects.listed(Query(NAMESPACE, None, selector)))
    except ApiError:
        namespaces = []  # an account that may not list namespaces has not created any
    yield from _found(cluster, CONFIG_MAP, [obj for obj in config_maps if not obj["metadata"].get("ownerReferences")])
    yield from _found(cluster, NAMESPACE, namespaces)


def _found(cluster: Cluster, kind: Kind, objs: Iterable[Json]) -> Iterator[OpenResource]:
    for obj in objs:
        owner = Owner.from_labels(_labels_of(obj), prefix=PREFIX)
        if owner is not None:
            yield _open_resource(cluster, kind, obj, owner)


def _open_resource(cluster: Cluster, kind: Kind, obj: Json, owner: Owner) -> OpenResource:
    found, metadata = _labels_of(obj), obj["metadata"]
    created = datetime.fromisoformat(str(metadata["creationTimestamp"]))
    expires = resources.expiry_of(found, prefix=PREFIX) or created + timedelta(seconds=TTL)
    described = resource(cluster, kind, str(metadata["name"]), namespace=metadata.get("namespace"))
    return OpenResource(described, owner, created, expires, is_created=True)


def _labels_of(obj: Json) -> Mapping[str, str]:
    return obj["metadata"].get("labels") or {}


def _server(cluster: Cluster) -> str:
    return str(cluster.credentials.configuration.host)
