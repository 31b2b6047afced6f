"""Reads the block `load` of the settings of the worker: the steps and the objectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from .answer_format import SettingsError
from .load_generator import Step
from .load_summary import Objectives
from .settings_block import Block

_MAX_STEPS: Final = 500
_HIGHEST_RATE: Final = 10_000
_HIGHEST_CONCURRENCY: Final = 1000
_ARRIVALS: Final = ("poisson", "constant")


@dataclass(frozen=True, kw_only=True)
class LoadSettings:
    """The steps of a load, in their order, and the objectives of all of them."""

    steps: Sequence[Step]
    objectives: Objectives


def read(block: Block) -> LoadSettings:
    """Return a load. Raise SettingsError."""
    entries = block.take("steps", list, [])
    steps = [_step(Block(entry, f"{block.place}.steps[{number}]")) for number, entry in enumerate(entries)]
    names = [step.name for step in steps]
    objectives = Block(block.take("objectives", dict, {}), f"{block.place}.objectives")
    load = LoadSettings(
        steps=steps,
        objectives=Objectives(
            first_token=objectives.positive("first_token", float, None),
            per_token=objectives.positive("per_token", float, None),
            end_to_end=objectives.positive("end_to_end", float, None),
        ),
    )
    objectives.refuse_rest()
    block.refuse_rest()
    if not 1 <= len(steps) <= _MAX_STEPS:
        raise SettingsError(f"{block.place}.steps has {len(steps)} steps, but there must be 1 to {_MAX_STEPS}")
    if repeated := [name for name in names if names.count(name) > 1]:
        raise SettingsError(f"{block.place}.steps has the step {repeated[0]} more than once")
    return load


def _step(block: Block) -> Step:
    values = {
        "rate": block.positive("rate", float, None, most=_HIGHEST_RATE),
        "concurrency": block.positive("concurrency", int, None, most=_HIGHEST_CONCURRENCY),
        "seconds": block.positive("seconds", float, 60.0),
        "warm_up_seconds": block.not_negative("warm_up", float, 0.0),
        "arrivals": block.take("arrivals", str, "poisson"),
        "seed": block.not_negative("seed", int, 0),
    }
    block.refuse_rest()
    if values["arrivals"] not in _ARRIVALS:
        raise SettingsError(f"{block.place}.arrivals must be {' or '.join(_ARRIVALS)}")
    try:
        return Step(**values)
    except ValueError as error:
        raise SettingsError(f"{block.place}: {error}") from error
