"""Checks that the account has the permissions that a run needs, before the run starts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from toolbox.features.kubernetes.api.connection import Cluster
from toolbox.features.kubernetes.api.objects import CONFIG_MAP


@dataclass(frozen=True, slots=True)
class Permission:
    """A permission that is required in a namespace.

    Args:
        verb: a verb such as `get` or `create`.
        resource: the plural of a kind, such as `pods`, or a subresource, such as `pods/log`.
        group: the API group; empty for the core group.
    """

    verb: str
    resource: str
    group: str = ""

    def __str__(self) -> str:
        """Return the permission for messages, such as `create jobs.batch`."""
        return f"{self.verb} {self.resource}{'.' if self.group else ''}{self.group}"


def missing(cluster: Cluster, required: Iterable[Permission], *, timeout: float) -> list[Permission]:
    """Return the required permissions that the account does not have (SelfSubjectAccessReview in the Kubernetes API).

    Raises:
        StepError: the cluster does not answer.
    """
    return [permission for permission in required if not _is_allowed(cluster, permission, timeout)]


def try_namespace(cluster: Cluster, *, timeout: float) -> None:
    """Check by a dry run that objects can be created in the namespace.

    Raises:
        ApiError: the namespace does not exist, or is being deleted.
        Unavailable: the cluster does not answer.
    """
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "topgallant-"}}
    path = CONFIG_MAP.path(cluster.namespace)
    cluster.request("POST", path, body=body, query={"dryRun": "All"}, timeout=timeout)


def _is_allowed(cluster: Cluster, permission: Permission, timeout: float) -> bool:
    resource, _, subresource = permission.resource.partition("/")
    attributes = {
        "namespace": cluster.namespace,
        "verb": permission.verb,
        "group": permission.group,
        "resource": resource,
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {**attributes, "subresource": subresource} if subresource else attributes},
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    answer = cluster.request("POST", path, body=body, timeout=timeout)
    return bool(answer["status"].get("allowed"))
