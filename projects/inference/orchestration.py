"""Serves models with several configurations each, sends test cases to the servers, and judges the answers."""

from collections.abc import Mapping

from toolbox.api import Configuration, config, matrix, run
from toolbox.features.inference import public


def derive(configuration: Configuration) -> Mapping[str, object]:
    """Return the axes of the matrix and the descriptions of the cells, which follow from the block `tests`."""
    return public.derive(configuration)


def prepare() -> None:
    """Record the state of the machines."""
    if config.project.get_config("host.capture_state.enabled"):
        for hosts in matrix.machines():
            run.run_toolbox_from_config("host", "capture_state", extra={"hosts": hosts})


def test() -> None:
    """Run the cells of the matrix."""
    matrix.run()
