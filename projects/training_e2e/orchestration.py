"""Trains small language models, a matrix of them, and checks what each left, as torchprime does."""

from toolbox.orchestration import config, matrix, run


def prepare() -> None:
    """Record the state of the machines, and write the text to learn on each."""
    for hosts in matrix.machines():
        if config.project.get_config("host.capture_state.enabled"):
            run.run_toolbox_from_config("host", "capture_state", extra={"hosts": hosts})
        run.run_toolbox_from_config("training", "prepare_corpus", extra={"hosts": hosts})


def test() -> None:
    """Train every model in every way that the matrix names."""
    matrix.run()


def post_cleanup() -> None:
    """Remove the text, unless it is kept for the next run. What the trainings left on the machines is gone already."""
    if not config.project.get_config("training.corpus.keep"):
        for hosts in matrix.machines():
            run.run_toolbox_from_config("training", "cleanup", extra={"hosts": hosts})
