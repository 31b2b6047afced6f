"""
The file of a trained model: its parameters, its shape and its vocabulary.

The file is an `.npz` archive of plain arrays, without pickled objects: `parameter.NAME` for each parameter,
`shape.NAME` for each size, and `characters`, the code points of the vocabulary. Token i is the i-th of them.
"""

from __future__ import annotations

import dataclasses
import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from transformer import Arrays, Shape, parameter_sizes


class CheckpointError(Exception):
    """The file is not a checkpoint; the message gives the reason on one line."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A trained model. `characters` is its vocabulary, with one character per token."""

    shape: Shape
    parameters: Arrays
    characters: str


def encode(checkpoint: Checkpoint) -> bytes:
    """Return the content of the file."""
    arrays: dict[str, Any] = {f"parameter.{name}": array for name, array in checkpoint.parameters.items()}
    arrays |= {f"shape.{name}": np.array(size) for name, size in dataclasses.asdict(checkpoint.shape).items()}
    arrays["characters"] = np.frombuffer(checkpoint.characters.encode("utf-32-le"), "<u4")
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def read(path: Path) -> Checkpoint:
    """Return the checkpoint of the file `path`. Raise CheckpointError if it is missing, damaged or inconsistent."""
    try:
        arrays = _arrays(path)
        shape = Shape(**{field.name: int(arrays.pop(f"shape.{field.name}")) for field in dataclasses.fields(Shape)})
        characters = arrays.pop("characters").astype("<u4").tobytes().decode("utf-32-le")
    except Exception as error:  # a damaged file can raise an error of almost any class
        raise CheckpointError(f"cannot read the checkpoint {path}: {error}") from error
    parameters = {name.removeprefix("parameter."): array for name, array in arrays.items()}
    faults = _faults(shape, parameters, characters)
    if faults:
        raise CheckpointError(f"the checkpoint {path} is inconsistent: {'; '.join(faults)}")
    return Checkpoint(shape=shape, parameters=parameters, characters=characters)


def _arrays(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        if not zipfile.is_zipfile(file):  # NumPy would advise to load pickled objects from it
            raise ValueError("it is not an .npz file, or its end is missing")
        file.seek(0)
        with np.load(file, allow_pickle=False) as archive:
            return dict(archive)


def _faults(shape: Shape, parameters: Arrays, characters: str) -> list[str]:
    if min(dataclasses.astuple(shape)) < 1 or shape.width % shape.heads or shape.layers > len(parameters):
        return [f"the sizes {dataclasses.asdict(shape)} are impossible"]
    faults = []
    if not len(characters) == len(set(characters)) == shape.vocabulary:
        faults.append(f"{len(characters)} characters are not {shape.vocabulary} different ones")
    expected = parameter_sizes(shape)
    faults += [f"{name} is missing" for name in expected.keys() - parameters.keys()]
    faults += [f"{name} is unknown" for name in parameters.keys() - expected.keys()]
    for name in expected.keys() & parameters.keys():
        array = parameters[name]
        if array.shape != expected[name]:
            faults.append(f"{name} has the size {array.shape} instead of {expected[name]}")
        elif array.dtype.kind != "f" or not np.isfinite(array).all():
            faults.append(f"{name} contains values that are not finite numbers")
    return sorted(faults)
