"""A block that has fields of the project beside those of Topgallant."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator

from toolbox.ground.model.nearest import misspelled


class OpenBlock(BaseModel):
    """A block whose other fields belong to the project. A field that misspells one of Topgallant is a fault."""

    model_config = ConfigDict(extra="allow")

    @model_validator(mode="after")
    def _is_spelled(self) -> Self:
        known = [field.alias or name for name, field in type(self).model_fields.items()]
        for name, value in (self.model_extra or {}).items():
            if self._may_be_misspelled(value) and (meant := misspelled(name, known)):
                raise ValueError(f"unknown field `{name}`: did you mean `{meant}`?")
        return self

    def _may_be_misspelled(self, value: object) -> bool:  # noqa: ARG002  # a block may look at the value
        """Return whether a field with this value may be a misspelled field of Topgallant."""
        return True
