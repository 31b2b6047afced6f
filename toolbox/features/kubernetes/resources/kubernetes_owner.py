"""The owner object of a run in a Kubernetes namespace. Its deletion also deletes the Jobs of the run."""

from __future__ import annotations

from typing import ClassVar

from toolbox.features.kubernetes import owned_objects
from toolbox.features.kubernetes.api.objects import CONFIG_MAP
from toolbox.ground.model.resources import Owner


class Resource(owned_objects.Deletion):
    """One owner object."""

    waits_for_attempts: ClassVar[bool] = True

    def delete(self, owner: Owner) -> None:
        """See `RemoteResource`."""
        self.delete_object(CONFIG_MAP, owner)
