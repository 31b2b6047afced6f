"""Sources of metrics. `source: json_file` in the configuration names the module `json_file.py`.

Each module defines a pydantic model named `Source` that implements `toolbox.ground.extensions.protocols.MetricSource`.
A source does not import another source, so the common part of the sources for JSON and YAML files is here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from toolbox.config import paths
from toolbox.ground.model import aggregates
from toolbox.ground.model.aggregates import Aggregate
from toolbox.records.runs.evidence_files import RelativeFile, read_document, readable


def _is_path(text: str) -> str:
    try:
        paths.parse(text)
    except paths.PathError as error:
        raise ValueError(str(error)) from None
    return text


class DocumentSource(BaseModel, ABC):
    """The path of a number, or of a list of numbers, in a document. `aggregate` and `warmup` apply only to a list."""

    model_config = ConfigDict(extra="forbid")

    file: RelativeFile
    path: Annotated[str, AfterValidator(_is_path)]
    aggregate: Aggregate | None = None
    warmup: int = Field(default=0, ge=0)

    @abstractmethod
    def parse(self, content: bytes) -> Any:
        """Return the document; raise ValueError if the content of the file is not valid."""

    def read(self, directory: Path) -> float | tuple[float, ...]:
        """Return the number at the path, or the aggregate of the list of numbers at the path.

        Raises:
            ValueError: the file cannot be read, or the path does not exist or does not contain finite numbers.
        """
        with readable(directory, self.file) as path:
            content = read_document(path, self.file)
        value = self.parse(content)
        for key in paths.parse(self.path):
            try:
                _, value = paths.child(value, key)
            except KeyError:
                raise ValueError(f"{self.file} has no {self.path}") from None
        source = f"{self.path} in {self.file}"
        if not isinstance(value, list):
            return aggregates.number(value, source=source)
        if self.aggregate is None:
            raise ValueError(f"{source} must be a finite number, not a list: set `aggregate` to reduce the list")
        measured = aggregates.after_warmup(enumerate(value), self.warmup, source=source)
        numbers = [aggregates.number(item, source=f"{self.path}[{index}] in {self.file}") for index, item in measured]
        return aggregates.aggregate(numbers, self.aggregate, source=source)
