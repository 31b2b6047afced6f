"""The contract of the block `reference_server` of this project: what the reference server serves."""

from pydantic import BaseModel, ConfigDict, Field


class Contract(BaseModel):
    """The block `reference_server`."""

    model_config = ConfigDict(extra="forbid")

    checkpoint: str = Field(pattern="^/", description="the file of the model on the targets")
