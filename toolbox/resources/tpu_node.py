"""Deletes a TPU node."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict

from toolbox.model.resources import Owner
from toolbox.tpu import api_endpoint, deletion
from toolbox.tpu.api import TpuApi
from toolbox.tpu.tpu_description import full_name, is_endpoint


class Resource(BaseModel):
    """A TPU node.

    Args:
        name: the full name, `projects/PROJECT/locations/ZONE/nodes/NAME`.
        api_endpoint: the address of the TPU API.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: Annotated[str, full_name("nodes")]
    api_endpoint: Annotated[str, AfterValidator(is_endpoint)]

    def delete(self, owner: Owner) -> bool:
        """See `toolbox.extensions.protocols.RemoteResource`."""
        with TpuApi(api_endpoint.parse(self.api_endpoint)) as api:
            return deletion.delete_node(api, self.name, owner)
