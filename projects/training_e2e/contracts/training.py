"""The contract of the block `training` of this project."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Strict(BaseModel):
    """A block in which a field that is not known is a mistake."""

    model_config = ConfigDict(extra="forbid")


class Corpus(Strict):
    """The text to learn, and whether to leave it on the machines for the next run."""

    characters: int = Field(ge=1000)
    keep: bool


class Settings(Strict):
    """What all cells are trained with, or an axis of the matrix sets."""

    context: int = Field(ge=1)
    steps: int = Field(ge=1)
    warmup_steps: int = Field(ge=0)
    learning_rate: float = Field(gt=0)
    precision: Literal["float32", "float64"]
    seed: int = Field(ge=0)


class Bounds(Strict):
    """The range that a metric must be in."""

    lower: float | None = None
    upper: float | None = None


class Contract(Strict):
    """Where and with what to train, and what to hold the trainings against."""

    directory: str = Field(min_length=1)
    python: str = Field(min_length=1)
    corpus: Corpus
    settings: Settings
    bounds: dict[str, Bounds]
