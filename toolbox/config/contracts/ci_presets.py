"""The contract of the block `ci_presets`: the presets by name, and which of them to apply."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class Contract(BaseModel):
    """Every other field is a preset: a mapping from paths to values, and `extends`."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, dict[Any, Any] | None]

    to_apply: list[str] | str | None = None
    names: list[str] | str | None = None
    name: str | None = None
