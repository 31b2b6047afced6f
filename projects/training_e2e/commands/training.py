"""Prepare machines for the small training workload of the project training_e2e, and clean them up."""

from pathlib import Path

from toolbox.api import role


class Training:
    """Prepare machines for a small training workload, and clean them up."""

    @role
    def prepare_corpus(self, directory: Path, characters: int = 200_000, python: str = "python3") -> None:
        """
        Create a directory with the training text of the workload.

        Args:
            directory: the directory for the text on the machine: new, empty, or prepared earlier by this command.
            characters: the length of the text in characters, 1000 or more. The longest text has about 465,000
                characters.
            python: the Python interpreter on the machine that will run the training: a name on the PATH, or an
                absolute path. It needs numpy.
        """

    @role
    def cleanup(self, directory: Path) -> None:
        """
        Remove a directory that `training prepare_corpus` has created. Trainings that use the directory may fail.

        Args:
            directory: the directory that `training prepare_corpus` has created. A missing directory is not an error.
        """
