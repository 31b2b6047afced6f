"""Which cluster is meant, as frozen data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Access:
    """How a cluster is reached.

    Args:
        kubeconfig: the file that says it; `$KUBECONFIG`, or `~/.kube/config`, when left out.
        context: of that file; its current one when left out.
        namespace: where things go that name none; that of the context when left out.
    """

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None
