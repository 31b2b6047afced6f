"""The contract of the field `ansible_warm`: whether helpers that have imported ansible-core execute the plays."""

from __future__ import annotations

from typing import Any

from pydantic import RootModel, StrictBool, model_validator


class Contract(RootModel[StrictBool]):
    """The field `ansible_warm`. Without this field, its value is true."""

    @model_validator(mode="before")
    @classmethod
    def _default(cls, value: Any) -> Any:
        return True if value == {} else value
