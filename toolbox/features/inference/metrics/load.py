"""Reads a figure of a step of a load from `load.json`, which the worker of inference tests writes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from toolbox.features.inference import load_results
from toolbox.ground.model.nearest import did_you_mean
from toolbox.records.runs.evidence_files import RelativeFile


def _is_figure(name: str) -> str:
    if name not in load_results.FIGURES:
        hint = did_you_mean(name, load_results.FIGURES, label="figures", most=len(load_results.FIGURES))
        raise ValueError(f"no figure `{name}`: {hint}")
    return name


class Source(BaseModel):
    """The step, such as `rate=4` or `concurrency=8`, and the figure, such as `first_token_p95`."""

    model_config = ConfigDict(extra="forbid")

    step: str = Field(min_length=1)
    figure: Annotated[str, AfterValidator(_is_figure)] = Field(examples=["first_token_p95"])
    file: RelativeFile = load_results.FILE

    def read(self, directory: Path) -> float:
        """Return the figure.

        Raises:
            ValueError: the file cannot be read, the step has not ended, or the figure has too few samples.
        """
        return load_results.read(directory, self.file).step(self.step).figure(self.figure)
