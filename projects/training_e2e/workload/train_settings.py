"""
The settings of a training run: read from JSON, checked, frozen.

They have no defaults here: `config/training_e2e.yaml` holds them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

PRECISIONS = ("float32", "float64")  # half precision is emulated on CPUs: slow, and no measure of anything


class SettingsError(Exception):
    """What was asked for cannot be trained; the message says why, on one line."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """
    What to train, and for how long.

    Attributes:
        layers: transformer blocks.
        width: size of the vector of a token; a multiple of `heads`.
        heads: attention heads in a block.
        context: characters that the model sees at once.
        batch: sequences in a step.
        steps: updates of the parameters.
        warmup_steps: first steps that the step time leaves out: caches and clocks settle in them.
        learning_rate: step size of Adam.
        precision: floating-point type of parameters and arithmetic.
        seed: of the initial parameters and of the batches.
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
    """The settings in the JSON file `path`; raises SettingsError that names every fault."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError(f"cannot read the settings {path}: {error}") from error
    if not isinstance(document, dict):
        raise SettingsError(f"the settings {path} are not a JSON object")
    faults = list(_faults_of_names(document)) or list(_faults_of_values(document))
    if faults:
        raise SettingsError(f"bad settings: {'; '.join(faults)}")
    return Settings(**document)


def _faults_of_names(document: Mapping[str, Any]) -> Iterator[str]:
    names = [field.name for field in fields(Settings)]
    for name in document:
        if name not in names:
            yield f"unknown {name!r} (known: {', '.join(names)})"
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
    """What `value` should have been, or None where it is that."""
    if name == "precision":
        return None if value in PRECISIONS else f"one of {', '.join(PRECISIONS)}"
    # True is an int to Python; JSON's NaN and Infinity are floats.
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if name == "learning_rate":
        return None if 0 < number < math.inf else "a number above 0"
    lowest = 0 if name in ("warmup_steps", "seed") else 1
    return None if isinstance(number, int) and number >= lowest else f"an integer from {lowest} on"
