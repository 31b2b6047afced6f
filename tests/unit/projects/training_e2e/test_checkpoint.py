"""A training writes its model to a checkpoint, and a damaged checkpoint is refused."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from checkpoint import Checkpoint, CheckpointError, encode, read
from transformer import Shape, Transformer, initial_parameters

Train = Callable[..., int]
SHAPE = Shape(vocabulary=3, layers=1, width=4, heads=2, context=5)


def content(**changes: object) -> bytes:
    """Return an encoded checkpoint with changes to its fields."""
    parameters = initial_parameters(SHAPE, np.random.default_rng(0), "float32")
    fields = {"shape": SHAPE, "parameters": parameters, "characters": "\0aé"} | changes
    return encode(Checkpoint(**fields))  # type: ignore[arg-type]


@pytest.fixture(name="path")
def _path(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint.npz"


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_training_writes_its_model(train: Train, tmp_path: Path, precision: str) -> None:
    text = "to be or not to be, that is the question: é😀\0 " * 20
    assert train(text, steps=60, precision=precision) == 0
    found = read(tmp_path / "model.npz")
    assert found.characters == "".join(sorted(set(text)))
    assert {array.dtype for array in found.parameters.values()} == {np.dtype(precision)}
    context = found.shape.context
    pieces = np.array(
        [[found.characters.index(character) for character in text[i : i + context + 1]] for i in range(8)]
    )
    model = Transformer(found.shape, found.parameters)
    loss, _ = model.loss_and_gradients(pieces[:, :-1], pieces[:, 1:])
    assert loss < 2  # untrained: log(19) = 2.9


def test_a_checkpoint_keeps_every_bit(path: Path) -> None:
    path.write_bytes(content())
    found = read(path)
    assert (found.shape, found.characters) == (SHAPE, "\0aé")
    for name, array in initial_parameters(SHAPE, np.random.default_rng(0), "float32").items():
        assert np.array_equal(found.parameters[name], array)


def test_a_training_that_diverges_leaves_no_checkpoint(train: Train, tmp_path: Path) -> None:
    assert train() == 0
    assert train(learning_rate=1e30) == 1
    assert not (tmp_path / "model.npz").exists()


def test_a_training_leaves_no_temporary_file(train: Train, tmp_path: Path) -> None:
    assert train() == 0
    assert {path.name for path in tmp_path.iterdir()} == {"model.npz", "output", "settings.json", "corpus.txt"}


# The two bytes after the eighth one of an entry are the method of compression.
UNKNOWN_COMPRESSION = re.sub(rb"(PK\x01\x02.{6})..", b"\\1\7\0", content(), flags=re.DOTALL)


@pytest.mark.parametrize("damaged", [b"", b"PK", b"text", content()[:-100], UNKNOWN_COMPRESSION])
def test_a_damaged_file_is_refused(path: Path, damaged: bytes) -> None:
    path.write_bytes(damaged)
    with pytest.raises(CheckpointError, match=r"cannot read the checkpoint .*checkpoint\.npz"):
        read(path)


@pytest.mark.parametrize("damaged", [b"", b"text", content()[:-100]])
def test_a_file_of_another_kind_is_refused_without_advice_to_trust_it(path: Path, damaged: bytes) -> None:
    path.write_bytes(damaged)
    with pytest.raises(CheckpointError, match=r": it is not an \.npz file, or its end is missing$"):
        read(path)


def test_a_missing_file_is_refused(path: Path) -> None:
    with pytest.raises(CheckpointError, match="No such file"):
        read(path)


def test_pickled_objects_are_not_loaded(path: Path) -> None:
    np.savez(path, characters=np.array([{}], dtype=object))
    with pytest.raises(CheckpointError, match="allow_pickle"):
        read(path)


def with_parameter(name: str, value: object) -> bytes:
    parameters = initial_parameters(SHAPE, np.random.default_rng(0), "float32")
    return content(parameters=parameters | {name: np.asarray(value)})


@pytest.mark.parametrize(
    ("written", "fault"),
    [
        (content(characters="aba"), "3 characters are not 3 different ones"),
        (content(characters="ab"), "2 characters are not 3 different ones"),
        (content(shape=Shape(vocabulary=3, layers=2, width=4, heads=2, context=5)), "1.mlp.norm.scale is missing"),
        (content(shape=Shape(vocabulary=3, layers=1, width=4, heads=3, context=5)), "impossible"),
        (content(shape=Shape(vocabulary=3, layers=10**12, width=4, heads=2, context=5)), "impossible"),
        (content(shape=Shape(vocabulary=3, layers=0, width=4, heads=2, context=5)), "impossible"),
        (with_parameter("extra", 1.0), "extra is unknown"),
        (with_parameter("norm.scale", [1.0]), r"norm.scale has the size \(1,\) instead of \(4,\)"),
        (with_parameter("norm.scale", [1.0, 1, 1, np.nan]), "norm.scale contains values that are not finite"),
        (with_parameter("norm.scale", [1, 1, 1, 1]), "norm.scale contains values that are not finite"),
    ],
)
def test_an_inconsistent_checkpoint_is_refused(path: Path, written: bytes, fault: str) -> None:
    path.write_bytes(written)
    with pytest.raises(CheckpointError, match=fault):
        read(path)
