"""Sources of metrics: one module a source, found by its name (`source: json_file`).

A source is a pydantic model named `Source` that implements `toolbox.extensions.protocols.MetricSource`. Sources know
nothing of one another: what the sources for documents have in common stands here.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from toolbox.config import paths
from toolbox.model import aggregates
from toolbox.model.aggregates import Aggregate
from toolbox.runs.evidence_files import RelativeFile


def _is_path(text: str) -> str:
    try:
        paths.parse(text)
    except paths.PathError as error:
        raise ValueError(str(error)) from None
    return text


class DocumentSource(BaseModel):
    """Where the number is in a document; `aggregate` and `warmup` apply where a list of numbers is there."""

    model_config = ConfigDict(extra="forbid")

    file: RelativeFile
    path: Annotated[str, AfterValidator(_is_path)]
    aggregate: Aggregate | None = None
    warmup: int = Field(default=0, ge=0)

    def find(self, document: Any) -> float | tuple[float, ...]:
        """Return what is at the path of a document.

        Raises:
            ValueError: the path leads nowhere, or to no number.
        """
        value = document
        for key in paths.parse(self.path):
            try:
                _, value = paths.child(value, key)
            except KeyError:
                raise ValueError(f"{self.file} has no {self.path}") from None
        source = f"{self.path} in {self.file}"
        if not isinstance(value, list):
            return aggregates.number(value, source=source)
        if self.aggregate is None:
            raise ValueError(f"{source} is a list, a number was expected: `aggregate` says how to make one of it")
        left = aggregates.after_warmup(enumerate(value), self.warmup, source=source)
        numbers = [aggregates.number(item, source=f"{self.path}[{index}] in {self.file}") for index, item in left]
        return aggregates.aggregate(numbers, self.aggregate, source=source)
