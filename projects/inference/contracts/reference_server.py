"""The contract of the block `reference_server` of this project: the model that the reference server serves."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Training(BaseModel):
    """The shape of the model, and its training."""

    model_config = ConfigDict(extra="forbid")

    layers: int = Field(ge=1)
    width: int = Field(ge=1)
    heads: int = Field(ge=1)
    context: int = Field(ge=2)
    batch: int = Field(ge=1)
    steps: int = Field(ge=1)
    learning_rate: float = Field(gt=0)
    precision: Literal["float32", "float64"]
    seed: int = Field(ge=0)

    @model_validator(mode="after")
    def _heads_share_the_width(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"`width` {self.width} cannot be divided by `heads` {self.heads}")
        return self


class Contract(BaseModel):
    """The block `reference_server`."""

    model_config = ConfigDict(extra="forbid")

    checkpoint: str = Field(pattern="^[^~]", description="the file of the model on the target")
    training: Training | None = Field(description="how a server trains a missing model; null for never")
