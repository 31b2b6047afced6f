"""Trains the model of the server, as the project `training_e2e` does, if there is no checkpoint."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Final

import prepare_corpus
import train
from checkpoint import encode
from train_settings import SettingsError, read_settings

_CHARACTERS: Final = 200_000


def train_missing(checkpoint: Path, settings: Path) -> None:
    """Train a model, and write it to a file, unless this file exists.

    Args:
        settings: a JSON file: those of `train.py` without `warmup_steps`, or null for no training.

    Raises:
        SettingsError: the settings are wrong.
        DivergedError: the settings make the training diverge.
    """
    document = _read(settings)
    if document is None or checkpoint.exists():
        return
    with tempfile.TemporaryDirectory() as scratch:
        complete, corpus = Path(scratch, "settings.json"), Path(scratch, "corpus.txt")
        complete.write_text(json.dumps({**document, "warmup_steps": 0}), encoding="utf-8")
        corpus.write_text(prepare_corpus.manual()[:_CHARACTERS], encoding="utf-8")
        parameters = read_settings(complete)
        tokens, characters = train.read_corpus(corpus, parameters.context)
    trained = train.train(parameters, tokens, characters).trained
    train.write_atomically(checkpoint, encode(trained))  # other servers may train the same file


def _read(path: Path) -> dict[str, object] | None:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError(f"cannot read the settings {path}: {error}") from error
    if document is not None and not isinstance(document, dict):
        raise SettingsError(f"the settings {path} are not a JSON object")
    return document
