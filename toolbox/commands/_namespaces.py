"""Creates the namespace of `cluster prepare_namespace`, so that it is on the ledger before it exists."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from toolbox.kubernetes import owned_objects
from toolbox.kubernetes.api.connection import Cluster
from toolbox.model.clusters import Access
from toolbox.orchestration import session


def create(namespace: str, kubeconfig: Path | None, context: str | None, *, keep: bool) -> None:
    """Create a namespace unless it exists, and record it on the ledger of the run, or of the user outside a run.

    Raises:
        ToolboxError: the ledger cannot be written, or the cluster does not answer.
    """
    with closing(Cluster(Access(str(kubeconfig) if kubeconfig else None, context))) as cluster:
        owned_objects.create_namespace(cluster, session.step().recorder.ledger, namespace, keep=keep)
