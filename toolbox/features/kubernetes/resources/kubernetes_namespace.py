"""A Kubernetes namespace that `cluster prepare_namespace` created, with all objects in it."""

from __future__ import annotations

from toolbox.features.kubernetes import owned_objects
from toolbox.features.kubernetes.api.objects import NAMESPACE
from toolbox.ground.model.resources import Owner


class Resource(owned_objects.Deletion):
    """One namespace."""

    def delete(self, owner: Owner) -> None:
        """See `RemoteResource`."""
        self.delete_object(NAMESPACE, owner)
