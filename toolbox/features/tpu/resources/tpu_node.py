"""A TPU node."""

from __future__ import annotations

from typing import Annotated

from toolbox.features.tpu import deletion
from toolbox.features.tpu.tpu_description import full_name


class Resource(deletion.TpuObject):
    """One node."""

    name: Annotated[str, full_name("nodes")]
