"""A server trains a missing model, so that it needs no file of the machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from checkpoint import read
from reference_server.training import train_missing
from train_settings import SettingsError

SETTINGS: dict[str, Any] = {
    "layers": 1,
    "width": 4,
    "heads": 2,
    "context": 8,
    "batch": 1,
    "steps": 2,
    "learning_rate": 0.01,
    "precision": "float32",
    "seed": 0,
}


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    path = tmp_path / "training.json"
    path.write_text(json.dumps(SETTINGS))
    return path


def test_a_missing_model_is_trained_with_the_settings(tmp_path: Path, settings: Path) -> None:
    train_missing(tmp_path / "a.npz", settings)
    train_missing(tmp_path / "b.npz", settings)
    shape = read(tmp_path / "a.npz").shape
    assert (shape.layers, shape.width, shape.heads, shape.context) == (1, 4, 2, 8)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"a.npz", "b.npz", "training.json"}


def test_a_model_that_exists_is_left_as_it_is(tmp_path: Path, settings: Path) -> None:
    (tmp_path / "a.npz").write_text("mine")
    train_missing(tmp_path / "a.npz", settings)
    assert (tmp_path / "a.npz").read_text() == "mine"


def test_null_stands_for_no_training(tmp_path: Path, settings: Path) -> None:
    settings.write_text("null")
    train_missing(tmp_path / "a.npz", settings)
    assert not (tmp_path / "a.npz").exists()


@pytest.mark.parametrize("content", ["", "[]", json.dumps(SETTINGS | {"heads": 3}), json.dumps({"steps": 1})])
def test_wrong_settings_are_refused(tmp_path: Path, settings: Path, content: str) -> None:
    settings.write_text(content)
    with pytest.raises(SettingsError, match="settings"):
        train_missing(tmp_path / "a.npz", settings)
