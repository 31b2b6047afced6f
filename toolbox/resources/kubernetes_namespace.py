"""A Kubernetes namespace that `cluster prepare_namespace` created, with all objects in it."""

from __future__ import annotations

from toolbox.kubernetes import owned_objects
from toolbox.kubernetes.api.objects import NAMESPACE
from toolbox.model.resources import Owner


class Resource(owned_objects.Deletion):
    """One namespace."""

    def delete(self, owner: Owner) -> None:
        """See `RemoteResource`."""
        self.delete_object(NAMESPACE, owner)
