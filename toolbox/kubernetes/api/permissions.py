"""Asks whether we may do what will be needed, before any of it is begun."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from toolbox.kubernetes.api.connection import Cluster
from toolbox.kubernetes.api.objects import CONFIG_MAP


@dataclass(frozen=True, slots=True)
class Need:
    """Something that has to be allowed in a namespace.

    Args:
        verb: `get`, `create`, ...
        resource: its plural; `pods/log` where it is a part of one.
        group: of the API; empty for its core.
    """

    verb: str
    resource: str
    group: str = ""

    def __str__(self) -> str:
        """Return what a person reads."""
        return f"{self.verb} {self.resource}{'.' if self.group else ''}{self.group}"


def missing(cluster: Cluster, needs: Iterable[Need], *, patience: float) -> list[Need]:
    """Return what is not allowed (the Kubernetes API, SelfSubjectAccessReview).

    Raises:
        StepError: the cluster cannot be asked.
    """
    return [need for need in needs if not _is_allowed(cluster, need, patience)]


def try_namespace(cluster: Cluster, *, patience: float) -> None:
    """See that something can be created in the namespace, without creating anything.

    Raises:
        Refused: it cannot: there is no such namespace, or it is being deleted.
        Away: the cluster cannot be asked.
    """
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "topgallant-"}}
    path = CONFIG_MAP.path(cluster.namespace)
    cluster.ask("POST", path, body=body, query={"dryRun": "All"}, patience=patience)


def _is_allowed(cluster: Cluster, need: Need, patience: float) -> bool:
    resource, _, part = need.resource.partition("/")
    asked = {"namespace": cluster.namespace, "verb": need.verb, "group": need.group, "resource": resource}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {**asked, "subresource": part} if part else asked},
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    answer = cluster.ask("POST", path, body=body, patience=patience)
    return bool(answer["status"].get("allowed"))
