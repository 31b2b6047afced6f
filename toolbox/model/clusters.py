"""How to reach a cluster, as frozen data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Access:
    """The access to a cluster.

    Args:
        kubeconfig: the file that describes the access; `$KUBECONFIG`, or `~/.kube/config`, when left out.
        context: the context in that file; the current one when left out.
        namespace: the namespace of objects that name none; that of the context when left out.
    """

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None
