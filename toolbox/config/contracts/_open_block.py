"""A block that has fields of the project beside those of Topgallant."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator

from toolbox.model.nearest import misspelled


class OpenBlock(BaseModel):
    """A block whose other fields belong to the project. A field that misspells one of Topgallant is a fault."""

    model_config = ConfigDict(extra="allow")

    @model_validator(mode="after")
    def _is_spelled(self) -> Self:
        known = [field.alias or name for name, field in type(self).model_fields.items()]
        for name in self.model_extra or {}:
            if meant := misspelled(name, known):
                raise ValueError(f"unknown field `{name}`: did you mean `{meant}`?")
        return self
