"""Trains a matrix of small language models, and checks the results of each training, as torchprime does."""

from toolbox.api import config, matrix, run


def prepare() -> None:
    """Record the state of the machines, and write the training text to each machine."""
    for hosts in matrix.machines():
        if config.project.get_config("host.capture_state.enabled"):
            run.run_toolbox_from_config("host", "capture_state", extra={"hosts": hosts})
        run.run_toolbox_from_config("training", "prepare_corpus", extra={"hosts": hosts})


def test() -> None:
    """Run the trainings of the matrix."""
    matrix.run()


def post_cleanup() -> None:
    """Remove the training text unless `training.corpus.keep` is set. No other files of the trainings are left."""
    if not config.project.get_config("training.corpus.keep"):
        for hosts in matrix.machines():
            run.run_toolbox_from_config("training", "cleanup", extra={"hosts": hosts})
