"""Reads the files with events that CI systems give to jobs. People write a part of their content."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError

from toolbox.ground.model.errors import UsageError
from toolbox.ground.model.foreign_text import clean
from toolbox.ground.model.text import abbreviated, truncate, without_kind
from toolbox.ground.system import environ

LARGEST: Final = 8 << 20
"""The largest size of an event in bytes. A comment has at most 64 KiB (GitHub) or 1 MB (GitLab)."""
_LONGEST_FAULT: Final = 200
Payload = TypeVar("Payload", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Event:
    """The JSON of an event.

    Args:
        source: what contains the event, for messages.
    """

    content: bytes | str
    source: str

    def parsed(self, model: type[Payload]) -> Payload:
        """Return the event as an object of a model, whose types are checked strictly.

        Raises:
            UsageError: the content is too large, is not JSON, or lacks a field.
        """
        if len(self.content) > LARGEST:
            raise UsageError(f"{self.source} has more than {LARGEST >> 20} MiB")
        try:
            return model.model_validate_json(self.content, strict=True)
        except ValidationError as error:
            fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
            place = ".".join(map(str, fault["loc"]))
            problem = truncate(clean(without_kind(fault["msg"])), _LONGEST_FAULT)
            raise UsageError(f"{self.source} is not as expected: {place + ': ' if place else ''}{problem}") from None


def read(variable: str) -> Event:
    """Return the event in the file that an environment variable names.

    Raises:
        UsageError: the variable is not set, or the file cannot be read.
    """
    path = environ.get_path(variable)
    if path is None:
        raise UsageError(f"${variable} is not set: it names the file with the event that started the job")
    source = f"the event in {abbreviated(str(path), longest=200)} (${variable})"
    return Event(_content(path, source), source)


def _content(path: Path, source: str) -> bytes:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise UsageError(f"{source} is not a file")
        with path.open("rb") as file:
            return file.read(LARGEST + 1)
    except (OSError, ValueError) as error:  # ValueError: the path has a NUL character
        raise UsageError(f"{source} cannot be read: {clean(getattr(error, 'strerror', None) or str(error))}") from None
