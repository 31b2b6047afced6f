"""The contract of the block `ci`: what a comment on a pull request may change."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from toolbox.config import paths


def _is_pattern(text: str) -> str:
    """Check a path with wildcards: `*` and `?` inside a key, and `**` for any number of keys."""
    try:
        if paths.parse(text):
            return text
    except paths.PathError as error:
        raise ValueError(error.detail) from None
    raise ValueError("`$` would allow every field: list the paths of the fields to allow")


class Contract(BaseModel):
    """The block `ci`. Other fields belong to the project."""

    model_config = ConfigDict(extra="allow")

    overridable: list[Annotated[str, AfterValidator(_is_pattern)]] = Field(
        default=[], description="patterns of the paths that `/var` of a comment may change; see docs/configuration.md"
    )
