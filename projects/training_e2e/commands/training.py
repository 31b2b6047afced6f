"""Prepare machines for the small training workload of the project training_e2e, and clean them up."""

from pathlib import Path

from toolbox.ansible.roles import role


class Training:
    """Prepare machines for a small training workload, and clean them up."""

    @role
    def prepare_corpus(self, directory: Path, characters: int = 200_000, python: str = "python3") -> None:
        """
        Write the text that the workload learns into a directory, which becomes the workload's own.

        Args:
            directory: where the text lives on the machine: new, empty, or prepared earlier.
            characters: length of the text, 1000 or more; what there is (about 465,000) if that is less.
            python: the interpreter there that trains later, found on the PATH or absolute; it needs numpy.
        """

    @role
    def cleanup(self, directory: Path) -> None:
        """
        Remove a directory that `training prepare_corpus` made. Trainings that go on there lose their text.

        Args:
            directory: where the text lives on the machine; nothing is done where it is absent.
        """
