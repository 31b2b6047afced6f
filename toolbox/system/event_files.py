"""Reads the files with events that CI systems give to jobs. People write a part of their content."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError

from toolbox.model.errors import UsageError
from toolbox.model.foreign_text import clean
from toolbox.model.text import abbreviated, truncate, without_kind
from toolbox.system import environ

LARGEST: Final = 8 << 20
"""The largest size of an event in bytes. A comment has at most 64 KiB (GitHub) or 1 MB (GitLab)."""
_LONGEST_FAULT: Final = 200
Payload = TypeVar("Payload", bound=BaseModel)


def read(variable: str, model: type[Payload]) -> Payload:
    """Return the event in the file that an environment variable names.

    Args:
        model: the fields of the event. Their types are checked strictly.

    Raises:
        UsageError: the variable is not set, or the file is missing, too large, or not such an event.
    """
    path = environ.get_path(variable)
    if path is None:
        raise UsageError(f"${variable} is not set: it names the file with the event that started the job")
    return parse(_content(path, variable), model, f"the event in {abbreviated(str(path), longest=200)} (${variable})")


def parse(content: bytes | str, model: type[Payload], what: str) -> Payload:
    """Return an event from its JSON.

    Args:
        what: what the content is, for messages.

    Raises:
        UsageError: the content is too large, or not such an event.
    """
    if len(content) > LARGEST:
        raise UsageError(f"{what} has more than {LARGEST >> 20} MiB")
    try:
        return model.model_validate_json(content, strict=True)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, fault["loc"]))
        problem = truncate(clean(without_kind(fault["msg"])), _LONGEST_FAULT)
        raise UsageError(f"{what} is not as expected: {place + ': ' if place else ''}{problem}") from None


def _content(path: Path, variable: str) -> bytes:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise UsageError(f"{path} (${variable}) is not a file")
        with path.open("rb") as file:
            return file.read(LARGEST + 1)
    except (OSError, ValueError) as error:  # ValueError: the path has a NUL character
        raise UsageError(f"the event that started the job cannot be read (${variable}): {clean(str(error))}") from None
