"""The processes of a model compute together, and the end of one of them is an error that names it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from queue import Queue

import numpy as np
import psutil
import pytest

from checkpoint import Checkpoint
from reference_server.generation import EngineError
from reference_server.model import Model
from reference_server.shards import ModelOptions, ShardedModel
from tests.features.inference.unit.projects.inference.models import whole_model


def options(path: Path, shards: int) -> ModelOptions:
    return ModelOptions(checkpoint=path, dtype="float32", shards=shards, slots=2, length=32)


@pytest.fixture(name="sharded")
def _sharded(checkpoint: Checkpoint, checkpoint_file: Path) -> Iterator[ShardedModel]:
    with closing(ShardedModel(checkpoint, options(checkpoint_file, 2))) as model:
        yield model


def shard() -> psutil.Process:
    (process,) = [child for child in psutil.Process().children() if "reference_server.shards" in child.cmdline()]
    return process


def test_the_processes_compute_what_one_computes(
    checkpoint: Checkpoint, sharded: ShardedModel, text: list[int]
) -> None:
    whole: Model = whole_model(checkpoint, "float32")
    np.testing.assert_allclose(sharded.prefill(1, text[:5]), whole.prefill(1, text[:5]), atol=1e-4)
    np.testing.assert_allclose(sharded.prefill(1, text[5:9], 5), whole.prefill(1, text[5:9], 5), atol=1e-4)
    for position in range(9, 12):
        arguments = [1], [text[position]], [position]
        np.testing.assert_allclose(sharded.decode(*arguments), whole.decode(*arguments), atol=1e-4)


def test_a_closed_model_leaves_no_process(checkpoint: Checkpoint, checkpoint_file: Path) -> None:
    deaths: Queue[EngineError] = Queue()
    with closing(ShardedModel(checkpoint, options(checkpoint_file, 2))) as model:
        model.watch(deaths.put)
        process = shard()
    assert not process.is_running()
    assert deaths.empty()


def test_a_dead_process_is_reported_at_once_and_at_the_next_step(sharded: ShardedModel) -> None:
    deaths: Queue[EngineError] = Queue()
    sharded.watch(deaths.put)
    process = shard()
    process.kill()
    reason = re.escape(f"shard 1 (process {process.pid}) ended with exit status -9")
    assert re.fullmatch(reason, str(deaths.get(timeout=30)))
    with pytest.raises(EngineError, match=reason):
        sharded.prefill(0, [1, 2, 3])


def test_a_process_that_cannot_start_is_reported(
    checkpoint: Checkpoint, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(EngineError, match=r"shard 1 \(process \d+\) ended with exit status 1"):
        ShardedModel(checkpoint, options(tmp_path / "removed.npz", 2))
    assert "removed.npz" in capfd.readouterr().err
