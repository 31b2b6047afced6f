"""The contract of the block `ci_presets`: the presets by name, and the names of the presets to apply."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, model_validator

from toolbox.model.nearest import misspelled


class Contract(BaseModel):
    """The block `ci_presets`.

    Every field except `to_apply`, `names` and `name` is a preset: a mapping, which is checked when it is applied.
    """

    model_config = ConfigDict(extra="allow")

    __pydantic_extra__: dict[str, dict[str, Any] | str | None]
    to_apply: list[str] | str | None = None
    names: list[str] | str | None = None
    name: str | None = None

    @model_validator(mode="after")
    def _is_spelled(self) -> Self:
        for name, value in (self.model_extra or {}).items():
            if isinstance(value, str) and (meant := misspelled(name, type(self).model_fields)):
                raise ValueError(f"unknown field `{name}`: did you mean `{meant}`?")
        return self
