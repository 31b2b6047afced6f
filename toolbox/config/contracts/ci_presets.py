"""The contract of the block `ci_presets`: the presets by name, and the names of the presets to apply."""

from __future__ import annotations

from typing import Any

from toolbox.config.contracts._open_block import OpenBlock


class Contract(OpenBlock):
    """The block `ci_presets`.

    Every field except `to_apply`, `names` and `name` is a preset: a mapping, which is checked when it is applied.
    """

    __pydantic_extra__: dict[str, dict[str, Any] | str | None]
    to_apply: list[str] | str | None = None
    names: list[str] | str | None = None
    name: str | None = None

    def _may_be_misspelled(self, value: object) -> bool:
        return isinstance(value, str)  # a mapping is a preset, which may have any name
