"""The contract of the block `training` of this project."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Strict(BaseModel):
    """A block that allows no unknown fields."""

    model_config = ConfigDict(extra="forbid")


class Corpus(Strict):
    """The training text, and whether to keep it on the machines for the next run."""

    characters: int = Field(ge=1000)
    keep: bool


class Settings(Strict):
    """The settings of the trainings. An axis of the matrix can override each of them."""

    context: int = Field(ge=1)
    steps: int = Field(ge=1)
    warmup_steps: int = Field(ge=0)
    learning_rate: float = Field(gt=0)
    precision: Literal["float32", "float64"]
    seed: int = Field(ge=0)


class Bounds(Strict):
    """The allowed range of a metric."""

    lower: float | None = None
    upper: float | None = None


class Contract(Strict):
    """The block `training`: the directory and Python on the machines, the text, the settings, and the metric bounds."""

    directory: str = Field(min_length=1)
    python: str = Field(min_length=1)
    corpus: Corpus
    settings: Settings
    bounds: dict[str, Bounds]
