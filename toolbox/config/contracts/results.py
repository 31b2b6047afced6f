"""The contract of the block `results`: whether and where runs are recorded."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from toolbox.ground.model.nearest import misspelled
from toolbox.ground.model.secrets import Secret

CURRENCY: Final = "USD"  # the default
_DATABASES: Final = ("postgresql", "postgres", "sqlite")


class Contract(BaseModel):
    """The block `results`. Without this block, runs are recorded with the defaults."""

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    record: bool = Field(default=True, description="whether runs are recorded in the store")
    database: Any = Field(
        default=None,
        description="a file or the URL of a PostgreSQL database (may be a secret); null for the store of this user",
    )
    revision: str | None = Field(
        default=None,
        min_length=1,
        description="the revision under test, for the records; null for the revision of the checkout that contains the "
        "configuration",
    )
    baseline: bool = Field(
        default=True,
        description="whether bounds, changes, flakiness and the dashboard use the runs; not for pull requests",
    )
    currency: str = Field(default=CURRENCY, min_length=1, description="the currency of `cost_per_hour`")

    @model_validator(mode="before")
    @classmethod
    def _ignore_block_of_project(cls, block: Any) -> Any:
        """Ignore a block that has none of these fields: it is a block of the project with the same name."""
        fields = cls.model_fields
        is_other = isinstance(block, dict) and not any(key in fields or misspelled(str(key), fields) for key in block)
        return {} if is_other else block

    @field_validator("database")
    @classmethod
    def _is_text(cls, value: Any) -> Any:
        if value is not None and not (isinstance(value, str | Secret) and value):
            raise ValueError("must be a file, or a URL such as postgresql://user@host/name")
        scheme, is_url, _ = str(value).partition("://")
        if isinstance(value, str) and is_url and scheme.partition("+")[0] not in _DATABASES:
            raise ValueError(f"{scheme} is not supported: use a file, or postgresql://user@host/name")
        return value
