"""The contract of the block `ci_presets`: the presets by name, and the names of the presets to apply."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Contract(BaseModel):
    """The block `ci_presets`.

    Every field except `to_apply`, `names` and `name` is a preset, which is checked when it is applied.
    """

    model_config = ConfigDict(extra="allow")

    to_apply: list[str] | str | None = None
    names: list[str] | str | None = None
    name: str | None = None
