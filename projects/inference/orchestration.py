"""Serves models with several configurations each, sends test cases to the servers, and judges the answers."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from toolbox.config.configuration import Configuration
from toolbox.inference import cells
from toolbox.orchestration import config, env, matrix, run

_TRAINING = Path(__file__).parents[1] / "training_e2e" / "workload"


def derive(configuration: Configuration) -> Mapping[str, object]:
    """Return the axes of the matrix and the descriptions of the cells, which follow from the block `tests`."""
    return cells.derive(configuration)


def prepare() -> None:
    """Record the state of the machines, and train the model of the reference server, unless an earlier run has."""
    if config.project.get_config("host.capture_state.enabled"):
        for hosts in matrix.machines():
            run.run_toolbox_from_config("host", "capture_state", extra={"hosts": hosts})
    checkpoint = Path(config.project.get_config("reference_server.checkpoint"))
    settings = config.project.get_config("reference_server.training")
    if settings is not None and not checkpoint.exists():
        with env.NextArtifactDir("train"):
            _train(checkpoint, settings)


def test() -> None:
    """Run the cells of the matrix."""
    matrix.run()


def _train(checkpoint: Path, settings: Mapping[str, object]) -> None:
    directory = env.ARTIFACT_DIR
    (directory / "settings.json").write_text(json.dumps({**settings, "warmup_steps": 0}), encoding="utf-8")
    corpus = directory / "corpus.txt"
    run.run([sys.executable, str(_TRAINING / "prepare_corpus.py"), f"--output={corpus}", "--characters=200000"])
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    train = [sys.executable, str(_TRAINING / "train.py"), f"--settings={directory / 'settings.json'}"]
    run.run([*train, f"--corpus={corpus}", f"--output={directory}", f"--checkpoint={checkpoint}"])
