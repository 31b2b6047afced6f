"""Finds the fields of the cells that a change of the configuration would reach too late.

The cells are planned before the first phase. Until they can be planned again, `config.project.set_config` refuses such
a change, because `config.yaml` would state values that no cell got.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from toolbox.config import paths, references
from toolbox.config.configuration import Configuration
from toolbox.config.paths import Path
from toolbox.ground.model.errors import ConfigurationError
from toolbox.matrix import planner
from toolbox.matrix.plan import BLOCK, Plan

_BLOCKS: Final = (BLOCK, "targets")
_PARTS: Final = tuple(f"{BLOCK}.{part}" for part in ("workload", "checks", "metrics"))  # may refer to the cell
_MISSING: Final = object()


def changed(before: Configuration, after: Configuration, plan: Plan | None) -> list[str]:
    """Return the paths of the fields of the cells whose values differ between two configurations.

    References are followed, also through other fields.

    Args:
        plan: the cells; None if the project had no matrix when the run began.
    """
    blocks = _BLOCKS if plan is not None else (BLOCK,)
    fields = [path for block in blocks for path in _differences_at(before, after, block)]
    if not fields and plan is not None and _has_chosen_fields(before, after):
        for cell in plan.cells:
            old, new = (planner.configuration_of_cell(each, cell.settings) for each in (before, after))
            if fields := [path for part in _PARTS for path in _differences_at(old, new, part)]:
                break
    return fields


def _differences_at(before: Configuration, after: Configuration, block: str) -> Iterator[str]:
    old, new = (each.get(block, default=None) for each in (before, after))
    return map(paths.render, _differences(old, new, paths.parse(block)))


def _has_chosen_fields(*configurations: Configuration) -> bool:
    """Return whether a reference in the matrix chooses a field for each cell: `@models.{@cell.model}`."""
    texts = (text for each in configurations for text in _texts(each.get(BLOCK, default=None)))
    return any(references.prefix_of(text) is not None for text in texts)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for item in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield from _texts(item)


def _differences(before: Any, after: Any, at: Path) -> Iterator[Path]:
    """Yield the paths at which two values differ."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in {**before, **after}:
            below = (*at, key if isinstance(key, str | int) else str(key))
            yield from _differences(before.get(key, _MISSING), after.get(key, _MISSING), below)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _differences(old, new, (*at, index))
    elif not _are_equal(before, after):
        yield at


def _are_equal(before: Any, after: Any) -> bool:
    try:
        return type(before) is type(after) and bool(before == after)
    except ConfigurationError:  # the file of one of the secrets cannot be read
        return False
