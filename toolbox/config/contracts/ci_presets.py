"""The contract of the block `ci_presets`: the presets by name, and which of them to apply."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Contract(BaseModel):
    """Every other field is a preset, which is looked at when it is asked for."""

    model_config = ConfigDict(extra="allow")

    to_apply: list[str] | str | None = None
    names: list[str] | str | None = None
    name: str | None = None
