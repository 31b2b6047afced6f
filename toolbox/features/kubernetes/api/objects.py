"""Reads and writes objects of any kind, built-in or custom. The API server reports which kinds it supports."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from toolbox.features.kubernetes.api.connection import TIMEOUT, ApiError, Cluster, Json
from toolbox.ground.model.errors import ConfigurationError, StepError

MANAGED_BY: Final = "app.kubernetes.io/managed-by"
MANAGER: Final = "topgallant"
"""The value of the label `MANAGED_BY`, and the name under which the server records the fields that Topgallant sets."""
RUN_LABEL: Final = "topgallant.dev/run"

_NAME: Final = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
_PAGE: Final = 500
_GROUP_SECONDS: Final = 2.0  # the timeout in seconds to read one API group; a cluster may have many API groups
_CONTENT_TYPES: Final = {
    # The API requires YAML for applied manifests. JSON is a subset of YAML.
    "apply": "application/apply-patch+yaml",
    "merge": "application/merge-patch+json",
    "edit": "application/json-patch+json",
}


def is_name(text: str) -> bool:
    """Return whether `text` is a valid name of an object (RFC 1123)."""
    return _NAME.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of objects.

    Args:
        api_version: the group and version, such as `v1` or `apps/v1`.
        name: the name of the kind, such as `Pod`.
        plural: the plural of the name in paths, such as `pods`.
        verbs: the verbs that the kind supports, such as `list` and `delete`.
    """

    api_version: str
    name: str
    plural: str
    is_namespaced: bool = True
    verbs: frozenset[str] = frozenset({"create", "get", "list", "watch", "patch", "delete"})

    @property
    def group(self) -> str:
        """The API group of the kind; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    def path(self, namespace: str | None, *names: str) -> str:
        """Return the path of all objects of the kind in a namespace, or of one object if `names` has its name.

        Args:
            namespace: the namespace; None for all namespaces, and for kinds without namespaces.
            names: the name of the object, and the subresource, if any: `p`, `log`.
        """
        root = "apis" if self.group else "api"
        where = ("namespaces", namespace) if self.is_namespaced and namespace else ()
        return f"/{root}/{self.api_version}/" + "/".join(quote(part, safe="") for part in (*where, self.plural, *names))


CONFIG_MAP: Final = Kind("v1", "ConfigMap", "configmaps")
NAMESPACE: Final = Kind("v1", "Namespace", "namespaces", is_namespaced=False)
EVENT: Final = Kind("v1", "Event", "events")
LEASE: Final = Kind("coordination.k8s.io/v1", "Lease", "leases")
NODE: Final = Kind("v1", "Node", "nodes", is_namespaced=False)
POD: Final = Kind("v1", "Pod", "pods")
SECRET: Final = Kind("v1", "Secret", "secrets")
SERVICE: Final = Kind("v1", "Service", "services")
DAEMON_SET: Final = Kind("apps/v1", "DaemonSet", "daemonsets")
REPLICA_SET: Final = Kind("apps/v1", "ReplicaSet", "replicasets")
JOB: Final = Kind("batch/v1", "Job", "jobs")
JOB_SET: Final = Kind("jobset.x-k8s.io/v1alpha2", "JobSet", "jobsets")


@dataclass(frozen=True, slots=True)
class Query:
    """A selection of objects to list or watch.

    Args:
        namespace: the namespace; None for all namespaces, and for kinds without namespaces.
    """

    kind: Kind
    namespace: str | None = None
    labels: str | None = None
    fields: str | None = None

    @property
    def path(self) -> str:
        """The path of the objects in the API."""
        return self.kind.path(self.namespace)

    def parameters(self, **further: Any) -> dict[str, Any]:
        """Return the query parameters of a request: the selectors and the further parameters."""
        selectors = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {**{name: text for name, text in selectors.items() if text}, **further}

    def pages(self, cluster: Cluster, timeout: float) -> Iterator[tuple[list[Json], Json]]:
        """Yield each page of the list of objects: its objects, and the metadata of the list."""
        # The server leaves the API version and the kind out of the objects in a list.
        kind_fields = {"apiVersion": self.kind.api_version, "kind": self.kind.name}
        query = self.parameters(limit=_PAGE)
        while True:
            page = cluster.request("GET", self.path, query=query, timeout=timeout)
            yield [{**kind_fields, **obj} for obj in page.get("items") or ()], page["metadata"]
            query["continue"] = page["metadata"].get("continue")
            if not query["continue"]:
                return


class Objects:
    """The objects of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    @functools.cached_property
    def kinds(self) -> tuple[Kind, ...]:
        """All kinds, in the API versions that the server prefers. API groups that do not answer are left out."""
        groups = self.cluster.request("GET", "/apis").get("groups") or ()
        versions = ["v1", *(str(group["preferredVersion"]["groupVersion"]) for group in groups)]
        kinds: list[Kind] = []
        for version in versions:
            try:
                kinds += self._kinds_of(version, _GROUP_SECONDS)
            except StepError:
                if version == "v1":
                    raise
                continue  # the server of this API group is unavailable, or the group has just been removed
        return tuple(kinds)

    def kind(self, api_version: str, name: str) -> Kind:
        """Return the kind with this API version and name.

        Raises:
            ConfigurationError: the cluster does not have this kind.
            StepError: the cluster does not answer.
        """
        try:
            kinds = self._kinds_of(api_version)
        except ApiError as error:
            if not error.is_absent:
                raise
            kinds = []
        for kind in kinds:
            if kind.name == name:
                return kind
        raise ConfigurationError(
            f"{self.cluster.label} has no kind {name} of {api_version}: is its definition installed there?"
        )

    def read(self, kind: Kind, namespace: str | None, name: str, *, timeout: float = TIMEOUT) -> Json | None:
        """Return an object; None if it does not exist."""
        try:
            return self.get(kind.path(namespace, name), timeout)
        except ApiError as error:
            if error.is_absent:
                return None
            raise

    def get(self, path: str, timeout: float = TIMEOUT) -> Json:
        """Return the response for a path. A response that is not JSON is returned as `{"text": ...}`."""
        return self.cluster.request("GET", path, timeout=timeout)

    def listed(self, query: Query, *, timeout: float = TIMEOUT) -> Iterator[Json]:
        """Yield the objects that a query selects."""
        for objects, _ in query.pages(self.cluster, timeout):
            yield from objects

    def events(self, namespace: str | None, *, fields: str | None = None, timeout: float = TIMEOUT) -> list[Json]:
        """Return the events of a namespace, oldest first.

        Args:
            fields: a field selector; None for all events.
        """
        events = self.listed(Query(EVENT, namespace, fields=fields), timeout=timeout)
        return sorted(events, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))

    def lacks_namespace(self, name: str) -> bool:
        """Return whether a namespace does not exist; False if this account may not read namespaces."""
        try:
            return self.read(NAMESPACE, None, name) is None
        except ApiError:
            return False

    def is_there(self, kind: Kind, namespace: str | None, name: str, *, timeout: float = TIMEOUT) -> bool:
        """Send a list request to find out whether an object exists.

        A "not found" response for the log of a pod does not prove that the pod is gone, because a kubelet that has just
        started may not know the pod.
        """
        return any(self.listed(Query(kind, namespace, fields=f"metadata.name={name}"), timeout=timeout))

    def create(self, kind: Kind, namespace: str | None, body: Json, *, timeout: float = TIMEOUT) -> Json:
        """Create an object."""
        query = {"fieldManager": MANAGER}
        path = kind.path(namespace)
        return self.cluster.request("POST", path, body=body, query=query, timeout=timeout)

    def apply(self, kind: Kind, namespace: str | None, body: Json, *, force: bool = False) -> Json:
        """Create or update an object from a manifest (see "Server-Side Apply" in the Kubernetes documentation).

        Args:
            force: whether to take over fields that belong to another field manager.
        """
        path, query = kind.path(namespace, str(body["metadata"]["name"])), {"fieldManager": MANAGER, "force": force}
        return self.cluster.request("PATCH", path, body=body, query=query, content=_CONTENT_TYPES["apply"])

    def merge(self, kind: Kind, namespace: str | None, name: str, body: Json, *, timeout: float = TIMEOUT) -> Json:
        """Change some fields of an object by a JSON Merge Patch (RFC 7396)."""
        path, query = kind.path(namespace, name), {"fieldManager": MANAGER}
        content = _CONTENT_TYPES["merge"]
        return self.cluster.request("PATCH", path, body=body, query=query, content=content, timeout=timeout)

    def edit(self, kind: Kind, namespace: str | None, name: str, operations: list[Json]) -> Json:
        """Change an object by a JSON Patch (RFC 6902)."""
        path, query = kind.path(namespace, name), {"fieldManager": MANAGER}
        return self.cluster.request("PATCH", path, body=operations, query=query, content=_CONTENT_TYPES["edit"])

    def delete(
        self, kind: Kind, namespace: str | None, name: str, *, uid: str | None = None, policy: str = "Background"
    ) -> bool:
        """Delete an object and its dependents, and return whether it existed.

        Args:
            uid: delete the object only if it has this UID; None to delete any object with this name.
            policy: the propagation policy. With `Foreground`, the object exists until its dependents are deleted.
        """
        body: Json = {"propagationPolicy": policy}
        if uid is not None:
            body["preconditions"] = {"uid": uid}
        try:
            self.cluster.request("DELETE", kind.path(namespace, name), body=body)
        except ApiError as error:
            if error.is_absent or (uid is not None and error.reason == "Conflict"):
                return False
            raise
        return True

    def _kinds_of(self, api_version: str, timeout: float = TIMEOUT) -> list[Kind]:
        root = "apis" if "/" in api_version else "api"
        answer = self.get(f"/{root}/{quote(api_version)}", timeout)
        return [
            Kind(api_version, each["kind"], each["name"], bool(each["namespaced"]), frozenset(each["verbs"]))
            for each in answer.get("resources") or ()
            if "/" not in each["name"]  # leave out subresources such as pods/log
        ]
