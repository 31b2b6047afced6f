"""Fixtures for the tests of the training workload, whose modules are importable as in its own script."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

WORKLOAD = Path(__file__).parents[4] / "projects" / "training_e2e" / "workload"
sys.path.insert(0, str(WORKLOAD))

SMALL: dict[str, Any] = {
    "layers": 1,
    "width": 16,
    "heads": 2,
    "context": 16,
    "batch": 8,
    "steps": 12,
    "warmup_steps": 2,
    "learning_rate": 1e-2,
    "precision": "float32",
    "seed": 0,
}


@pytest.fixture
def workload() -> Path:
    """Return the folder of the workload's scripts."""
    return WORKLOAD


@pytest.fixture
def small() -> dict[str, Any]:
    """Return the default settings of `train`, with which a training takes a fraction of a second."""
    return dict(SMALL)


@pytest.fixture
def train(tmp_path: Path) -> Callable[..., int]:
    """Return a function that trains with changes to `small` in `tmp_path / "output"`, and returns the exit status."""
    import train as script  # needs the folder of the workload in `sys.path`

    def run(text: str = "to be or not to be, that is the question. " * 20, **changes: Any) -> int:
        settings, corpus = tmp_path / "settings.json", tmp_path / "corpus.txt"
        settings.write_text(json.dumps({k: v for k, v in (SMALL | changes).items() if v is not None}))
        corpus.write_text(text, encoding="utf-8")
        files = {"settings": settings, "corpus": corpus, "output": tmp_path / "output"}
        files["checkpoint"] = tmp_path / "model.npz"
        return script.main([word for name, path in files.items() for word in (f"--{name}", str(path))])

    return run
