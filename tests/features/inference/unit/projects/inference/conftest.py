"""Fixtures for the tests of the reference server, whose modules are importable as in its own process."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from tests.features.inference.servers.reference_server import WORKLOADS, write_checkpoint

sys.path[:0] = map(str, WORKLOADS)

from checkpoint import Checkpoint, read  # noqa: E402  # needs the path
from reference_server.model import Model  # noqa: E402
from reference_server.vocabulary import Vocabulary  # noqa: E402
from tests.features.inference.unit.projects.inference.models import whole_model  # noqa: E402


@pytest.fixture(scope="session")
def checkpoint_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of a small model with random parameters and a context of 32 characters."""
    path = tmp_path_factory.mktemp("checkpoint") / "tiny.npz"
    write_checkpoint(path)
    return path


@pytest.fixture(scope="session")
def checkpoint(checkpoint_file: Path) -> Checkpoint:
    return read(checkpoint_file)


@pytest.fixture(scope="session")
def vocabulary(checkpoint: Checkpoint) -> Vocabulary:
    return Vocabulary(checkpoint.characters)


@pytest.fixture(params=["float32", "float16"])
def model(checkpoint: Checkpoint, request: pytest.FixtureRequest) -> Model:
    """Return an unsharded model with a cache for four sequences."""
    return whole_model(checkpoint, request.param)


@pytest.fixture
def precise_model(checkpoint: Checkpoint) -> Model:
    """Return a model with float64, in which two ways to compute the same differ by almost nothing."""
    return whole_model(checkpoint, "float64")


@pytest.fixture
def text(checkpoint: Checkpoint) -> list[int]:
    """Return random tokens that fill the context."""
    return [int(token) for token in np.random.default_rng(1).integers(0, len(checkpoint.characters), 32)]
