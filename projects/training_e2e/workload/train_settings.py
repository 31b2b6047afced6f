"""
The settings of a training run: read from JSON, checked, frozen.

The defaults are in `config/training_e2e.yaml`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

PRECISIONS = ("float32", "float64")  # not half precision: CPUs emulate it slowly, so its times mean nothing


class SettingsError(Exception):
    """The settings or the corpus are unusable; the message gives the reason on one line."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """
    The settings of a training run.

    Attributes:
        layers: number of transformer blocks.
        width: size of the vector of a token; a multiple of `heads`.
        heads: number of attention heads per block.
        context: number of characters that the model sees at once.
        batch: number of sequences per step.
        steps: number of updates of the parameters.
        warmup_steps: number of first steps that are not part of the step time, because caches and clocks still settle.
        learning_rate: step size of Adam.
        precision: floating-point type of parameters and arithmetic.
        seed: seed for the initial parameters and the batches.
    """

    layers: int
    width: int
    heads: int
    context: int
    batch: int
    steps: int
    warmup_steps: int
    learning_rate: float
    precision: str
    seed: int


def read_settings(path: Path) -> Settings:
    """Return the settings from the JSON file `path`. Raises SettingsError, whose message names all mistakes."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError(f"cannot read the settings {path}: {error}") from error
    if not isinstance(document, dict):
        raise SettingsError(f"the settings {path} are not a JSON object")
    faults = list(_faults_of_names(document)) or list(_faults_of_values(document))
    if faults:
        raise SettingsError(f"the settings are wrong: {'; '.join(faults)}")
    return Settings(**document)


def _faults_of_names(document: Mapping[str, Any]) -> Iterator[str]:
    names = [field.name for field in fields(Settings)]
    for name in document:
        if name not in names:
            yield f"unknown setting {name!r} (the settings are {', '.join(names)})"
    for name in names:
        if name not in document:
            yield f"{name} is missing"


def _faults_of_values(document: Mapping[str, Any]) -> Iterator[str]:
    faulty = set()
    for name, value in document.items():
        expected = _expected(name, value)
        if expected:
            faulty.add(name)
            yield f"{name} must be {expected}, not {value!r}"
    if not faulty & {"width", "heads"} and document["width"] % document["heads"]:
        yield f"width {document['width']} cannot be divided by heads {document['heads']}"
    if not faulty & {"steps", "warmup_steps"} and document["steps"] <= document["warmup_steps"]:
        yield f"steps {document['steps']} must be more than warmup_steps {document['warmup_steps']}"


def _expected(name: str, value: object) -> str | None:
    """Return a description of the allowed values of a setting; None if `value` is allowed."""
    if name == "precision":
        return None if value in PRECISIONS else f"one of {', '.join(PRECISIONS)}"
    # In Python, `True` is an int, and NaN and Infinity are floats that JSON can contain.
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if name == "learning_rate":
        return None if 0 < number < math.inf else "a number above 0"
    lowest = 0 if name in ("warmup_steps", "seed") else 1
    return None if isinstance(number, int) and number >= lowest else f"an integer of at least {lowest}"
