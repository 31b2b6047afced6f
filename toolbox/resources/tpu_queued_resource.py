"""Deletes a queued resource of the TPU API with its nodes."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict

from toolbox.model.resources import Owner
from toolbox.tpu import api_endpoint, deletion
from toolbox.tpu.api import TpuApi
from toolbox.tpu.tpu_description import full_name, is_endpoint


class Resource(BaseModel):
    """A queued resource of the TPU API with its nodes.

    Args:
        name: the full name, `projects/PROJECT/locations/ZONE/queuedResources/NAME`.
        api_endpoint: the address of the TPU API.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: Annotated[str, full_name("queuedResources")]
    api_endpoint: Annotated[str, AfterValidator(is_endpoint)]

    def delete(self, owner: Owner) -> bool:
        """See `toolbox.extensions.protocols.RemoteResource`."""
        with TpuApi(api_endpoint.parse(self.api_endpoint)) as api:
            return deletion.delete_queued_resource(api, self.name, owner)
