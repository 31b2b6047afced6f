"""How to reach a cluster, as frozen data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach a cluster, and the default namespace there.

    Args:
        kubeconfig: the path of the kubeconfig; None for `$KUBECONFIG` or `~/.kube/config`.
        context: the context of the kubeconfig; None for the current context.
        namespace: the namespace of objects that don't name a namespace; None for the namespace of the context.
    """

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None
