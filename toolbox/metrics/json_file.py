"""A metric from a JSON file, by its path in it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from toolbox.config import paths
from toolbox.model.text import shown


class Source(BaseModel):
    """Where the number is."""

    model_config = ConfigDict(extra="forbid")

    file: str
    path: str

    def read(self, directory: Path) -> float:
        """Return the number.

        Raises:
            ValueError: the file or the path is not there, or holds no finite number.
        """
        value: Any = _load(directory / self.file)
        for key in paths.parse(self.path):
            try:
                _, value = paths.child(value, key)
            except KeyError:
                raise ValueError(f"{self.file} has no {self.path}") from None
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"{self.path} in {self.file} is {shown(value)}, a number was expected")
        return float(value)


def _load(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"), parse_int=float)
    except FileNotFoundError:
        raise ValueError(f"{file.name} is not there") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file.name} is not JSON: {error}") from None
