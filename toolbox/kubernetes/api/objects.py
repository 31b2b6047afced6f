"""Reads and writes objects of any kind, built-in or custom. The kinds are discovered from the API server.

Every request goes through `Cluster.ask`. Responses are never stored on disk.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from toolbox.kubernetes.api.connection import TIMEOUT, ApiError, Cluster, Json
from toolbox.model.errors import ConfigurationError, StepError

MANAGER: Final = "topgallant"
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
RUN_LABEL: Final = "topgallant.dev/run"
"""The field manager that the server records for the fields that Topgallant sets (server-side apply)."""

_NAME: Final = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
_PAGE: Final = 500
_BRIEFLY: Final = 2.0  # timeout in seconds per API group, of which there are many
_CONTENT: Final = {
    # The API takes an applied manifest as YAML, of which JSON is a subset.
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
        api_version: the group and version: `v1`, `apps/v1`.
        name: the name of the kind: `Pod`.
        plural: the name in paths: `pods`.
        verbs: the verbs that the kind supports: `list`, `delete`, ...
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
        """Return the path of the kind's objects in a namespace (None: in all), or of the one object that is named."""
        root = "apis" if self.group else "api"
        where = ("namespaces", namespace) if self.is_namespaced and namespace else ()
        return f"/{root}/{self.api_version}/" + "/".join(quote(part, safe="") for part in (*where, self.plural, *names))


CONFIG_MAP: Final = Kind("v1", "ConfigMap", "configmaps")
NAMESPACE: Final = Kind("v1", "Namespace", "namespaces", is_namespaced=False)
EVENT: Final = Kind("v1", "Event", "events")
LEASE: Final = Kind("coordination.k8s.io/v1", "Lease", "leases")
POD: Final = Kind("v1", "Pod", "pods")
SECRET: Final = Kind("v1", "Secret", "secrets")
SERVICE: Final = Kind("v1", "Service", "services")
JOB: Final = Kind("batch/v1", "Job", "jobs")
JOB_SET: Final = Kind("jobset.x-k8s.io/v1alpha2", "JobSet", "jobsets")


@dataclass(frozen=True, slots=True)
class Query:
    """A selection of objects to list or watch.

    Args:
        namespace: None selects all namespaces, and is right for kinds without namespaces.
        labels: a label selector.
        fields: a field selector.
    """

    kind: Kind
    namespace: str | None = None
    labels: str | None = None
    fields: str | None = None

    @property
    def path(self) -> str:
        """The path of the objects in the API."""
        return self.kind.path(self.namespace)

    def chosen(self, **asked: Any) -> dict[str, Any]:
        """Return the parameters of a request: those given, and the selectors."""
        selectors = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {**{name: text for name, text in selectors.items() if text}, **asked}

    def page(self, token: str) -> dict[str, Any]:
        """Return the parameters to request one page of the list: the first page, or the page of a continue token."""
        return self.chosen(limit=_PAGE, **({"continue": token} if token else {}))


class Objects:
    """The objects of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    @functools.cached_property
    def kinds(self) -> tuple[Kind, ...]:
        """All kinds, each in the version that the server prefers. Groups whose server is unavailable are left out."""
        groups = self.cluster.ask("GET", "/apis").get("groups") or ()
        versions = ["v1", *(str(group["preferredVersion"]["groupVersion"]) for group in groups)]
        found: list[Kind] = []
        for version in versions:
            try:
                found += self._kinds_of(version, _BRIEFLY)
            except StepError:
                if version == "v1":
                    raise
                continue  # the server of an API extension is unavailable, or the extension has just been removed
        return tuple(found)

    def kind(self, api_version: str, name: str) -> Kind:
        """Return a kind.

        Raises:
            ConfigurationError: the cluster has no kind of this name.
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

    def has(self, api_version: str, name: str) -> bool:
        """Return whether the cluster has a kind."""
        try:
            self.kind(api_version, name)
        except ConfigurationError:
            return False
        return True

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
        return self.cluster.ask("GET", path, timeout=timeout)

    def listed(self, query: Query, *, timeout: float = TIMEOUT) -> Iterator[Json]:
        """Yield the objects that a query selects."""
        page = ""
        while True:
            answer = self.cluster.ask("GET", query.path, query=query.page(page), timeout=timeout)
            # The objects in a list don't include their kind.
            named = {"apiVersion": query.kind.api_version, "kind": query.kind.name}
            yield from ({**named, **found} for found in answer.get("items") or ())
            page = str(answer["metadata"].get("continue") or "")
            if not page:
                return

    def lacks_namespace(self, name: str) -> bool:
        """Return whether a namespace is known to be missing: False if this account may not read namespaces."""
        try:
            return self.read(NAMESPACE, None, name) is None
        except ApiError:
            return False

    def is_there(self, kind: Kind, namespace: str | None, name: str, *, timeout: float = TIMEOUT) -> bool:
        """Return whether an object exists, by a list request.

        A "not found" for a part of a pod, such as its log, does not prove that the pod is missing: a kubelet that has
        just started may not know the pod yet.
        """
        return any(self.listed(Query(kind, namespace, fields=f"metadata.name={name}"), timeout=timeout))

    def create(self, kind: Kind, namespace: str | None, body: Json, *, timeout: float = TIMEOUT) -> Json:
        """Create an object."""
        query = {"fieldManager": MANAGER}
        path = kind.path(namespace)
        return self.cluster.ask("POST", path, body=body, query=query, timeout=timeout)

    def apply(self, kind: Kind, namespace: str | None, body: Json, *, force: bool = False) -> Json:
        """Create or update an object from a manifest (the Kubernetes documentation, "Server-Side Apply").

        Args:
            force: whether to take over fields that belong to another field manager.
        """
        path, query = kind.path(namespace, str(body["metadata"]["name"])), {"fieldManager": MANAGER, "force": force}
        return self.cluster.ask("PATCH", path, body=body, query=query, content=_CONTENT["apply"])

    def merge(self, kind: Kind, namespace: str | None, name: str, body: Json, *, timeout: float = TIMEOUT) -> Json:
        """Change some fields of an object (RFC 7396)."""
        path, query = kind.path(namespace, name), {"fieldManager": MANAGER}
        return self.cluster.ask("PATCH", path, body=body, query=query, content=_CONTENT["merge"], timeout=timeout)

    def edit(self, kind: Kind, namespace: str | None, name: str, operations: list[Json]) -> Json:
        """Change an object by the operations of a JSON Patch (RFC 6902)."""
        path, query = kind.path(namespace, name), {"fieldManager": MANAGER}
        return self.cluster.ask("PATCH", path, body=operations, query=query, content=_CONTENT["edit"])

    def delete(
        self, kind: Kind, namespace: str | None, name: str, *, uid: str | None = None, policy: str = "Background"
    ) -> bool:
        """Delete an object and its dependents, and return whether it existed.

        Args:
            uid: delete only the object with this UID, and not a new one of the same name.
            policy: the propagation policy; with `Foreground` the object remains until its dependents are deleted.
        """
        body: Json = {"propagationPolicy": policy}
        if uid is not None:
            body["preconditions"] = {"uid": uid}
        try:
            self.cluster.ask("DELETE", kind.path(namespace, name), body=body)
        except ApiError as error:
            if error.is_absent or (uid is not None and error.reason == "Conflict"):
                return False
            raise
        return True

    def _kinds_of(self, api_version: str, timeout: float = TIMEOUT) -> list[Kind]:
        root = "apis" if "/" in api_version else "api"
        answer = self.get(f"/{root}/{quote(api_version)}", timeout)
        return [
            Kind(api_version, found["kind"], found["name"], bool(found["namespaced"]), frozenset(found["verbs"]))
            for found in answer.get("resources") or ()
            if "/" not in found["name"]  # leave out subresources: pods/log
        ]
