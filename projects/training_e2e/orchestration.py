"""Trains small language models side by side on one machine, and checks what they left, as torchprime does."""

from collections.abc import Mapping
from typing import Any

from toolbox.orchestration import config, env, judging, run


def prepare() -> None:
    """Record the state of the machine, and write the corpus."""
    if config.project.get_config("host.capture_state.enabled"):
        run.run_toolbox_from_config("host", "capture_state")
    run.run_toolbox_from_config("training", "prepare_corpus")


def test() -> None:
    """Train every model, all at once, and judge each by its own."""
    with run.Parallel("train_models", exit_on_exception=False) as parallel:
        for name, settings in config.project.get_config("training.models").items():
            parallel.task(name, train, name, settings)


def train(name: str, settings: Mapping[str, Any]) -> None:
    """Train one model, then judge its logs, its metrics and its profile."""
    trained = run.run_toolbox_from_config("training", "run", extra={"name": name_on_machine(name), **settings})
    judging.judge(
        trained.directory / "artifacts",
        config.project.get_config("training.checks"),
        config.project.get_config("training.metrics"),
    )


def post_cleanup() -> None:
    """Leave nothing of this run on the machine. Another run may be going on there: it keeps its own, and the corpus."""
    names = [name_on_machine(name) for name in config.project.get_config("training.models")]
    run.run_toolbox_from_config("training", "cleanup", extra={"names": names})


def name_on_machine(model: str) -> str:
    """Return what a model's training is called on the machine, where other runs may train the same model."""
    return f"{env.RUN}.{model}"
