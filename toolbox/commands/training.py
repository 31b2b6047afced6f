"""Prepare, run and clean up the small training workload of `projects/training_e2e`."""

from pathlib import Path
from typing import Literal

from toolbox.roles import role


class Training:
    """Prepare, run and clean up a small training workload on a machine."""

    @role
    def prepare_corpus(self, directory: Path, characters: int = 200_000) -> None:
        """
        Write the text that `training run` learns into a directory, which becomes the workload's own.

        Args:
            directory: where the workload lives on the machine: new, empty, or prepared earlier.
            characters: length of the text, 1000 or more; what there is (about 465,000) if that is less.
        """

    @role
    def run(
        self,
        directory: Path,
        name: str = "train",
        layers: int = 2,
        width: int = 64,
        heads: int = 4,
        context: int = 64,
        batch: int = 16,
        steps: int = 40,
        warmup_steps: int = 5,
        learning_rate: float = 3e-3,
        precision: Literal["float32", "float64"] = "float32",
        seed: int = 0,
        timeout_seconds: int = 600,
    ) -> None:
        """
        Train a small language model on the CPU, and bring back its logs, its metrics and its profile.

        Args:
            directory: what `training prepare_corpus` prepared on the machine.
            name: of this run, letters, digits and "._,=-"; what an earlier run of that name left is replaced.
            layers: transformer blocks.
            width: size of the vector of a character; a multiple of `heads`.
            heads: attention heads in a block.
            context: characters that the model sees at once.
            batch: sequences of `context` characters in a step.
            steps: updates of the parameters; more than `warmup_steps`.
            warmup_steps: first steps that the step time leaves out.
            learning_rate: step size of Adam.
            precision: floating-point type of the parameters and of the arithmetic.
            seed: of the initial parameters and of the batches; the same seed gives the same losses.
            timeout_seconds: after which the training is killed, in seconds, 1 or more.
        """

    @role
    def cleanup(self, directory: Path, names: list[str] | None = None, keep_corpus: bool = True) -> None:
        """
        Remove training runs, and the corpus, from a directory that `training prepare_corpus` prepared.

        Args:
            directory: where the workload lives on the machine; nothing is done where it is absent.
            names: the runs to remove; all of them when left out, those of others that go on too.
            keep_corpus: leave the corpus, for further runs.
        """
