"""The contract of the block `training` of this project."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from toolbox.orchestration import judging


class Strict(BaseModel):
    """A block in which a field that is not known is a mistake."""

    model_config = ConfigDict(extra="forbid", strict=False)


class Settings(Strict):
    """What a model is trained with."""

    layers: int | None = Field(default=None, ge=1)
    width: int | None = Field(default=None, ge=1)
    heads: int | None = Field(default=None, ge=1)
    context: int | None = Field(default=None, ge=1)
    batch: int | None = Field(default=None, ge=1)
    steps: int | None = Field(default=None, ge=1)
    warmup_steps: int | None = Field(default=None, ge=0)
    learning_rate: float | None = Field(default=None, gt=0)
    precision: Literal["float32", "float64"] | None = None
    seed: int | None = None
    timeout_seconds: int | None = Field(default=None, ge=1)


class Corpus(Strict):
    """The text to learn."""

    characters: int = Field(ge=1000)


class Bounds(Strict):
    """The range that a metric must be in."""

    lower: float | None = None
    upper: float | None = None


class Contract(Strict):
    """Models to train side by side, and the checks of each."""

    directory: str = Field(min_length=1)
    corpus: Corpus
    settings: Settings
    models: dict[str, Settings] = Field(min_length=1)
    bounds: dict[str, Bounds]
    metrics: dict[str, judging.MetricSpec]
    checks: list[judging.CheckSpec] = Field(min_length=1)
