"""Run directories and numbered step directories."""

from __future__ import annotations

import re
import secrets
import string
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from toolbox.system import filesystem

_NUMBERS: Final = ".numbers"
_ALPHABET: Final = string.ascii_lowercase + string.digits
_LONGEST_NAME: Final = 120  # bytes, of the 255 that a file system allows
_ATTEMPT = re.compile(r"attempt-\d+")
# What is masked as it is written, and looked up by a program: a secret may be the same word as a name in it.
_RECORDS: Final = frozenset(
    {"step.json", "FAILURE", "settings.yaml", "checks.json", "outcome.json", "exit_code", "started"}
)
_DIRECTORY = re.compile(r"(?P<number>\d{3,})__(?P<name>.+)")


def run_id(now: datetime | None = None) -> str:
    """Return a new name of a run: the time in UTC and four random characters, `20261121-011343-x7k2`."""
    tail = "".join(secrets.choice(_ALPHABET) for _ in range(4))
    return f"{now or datetime.now(UTC):%Y%m%d-%H%M%S}-{tail}"


def next_directory(parent: Path, name: str, *, after: int | None = None) -> Path:
    """Create the next numbered directory in `parent`: `003__name`.

    Args:
        after: a number that is known to be taken, to look for a free one from there on; otherwise they are counted.

    The number is taken by an atomic mkdir in `.numbers/`, under the number alone, so that neither two threads
    nor two processes ever share one, whatever names they ask for.
    """
    numbers = filesystem.make_directory(parent / _NUMBERS)
    number = sum(1 for _ in numbers.iterdir()) if after is None else after + 1
    while True:
        try:
            (numbers / f"{number:03d}").mkdir(mode=filesystem.PRIVATE_DIRECTORY)
        except FileExistsError:
            number += 1
            continue
        break
    return filesystem.make_directory(parent / f"{number:03d}__{safe_name(name)}")


def reserve(root: Path, steps: Iterable[str]) -> None:
    """Take the numbers of steps that a journal names: a power cut may have lost the directories that hold them.

    Args:
        steps: their directories, from `root` on.
    """
    for step in steps:
        parent, _, name = step.rpartition("/")
        if (match := _DIRECTORY.fullmatch(name)) is not None:
            filesystem.make_directory(root / parent / _NUMBERS / match["number"])


def number_of(directory: Path) -> int:
    """Return the number of a numbered directory."""
    return int(directory.name.partition("__")[0])


def safe_name(name: str) -> str:
    """Return a name that can be a directory's: no separator, no control character, not too long."""
    cleaned = re.sub(r"[^\w.,=@+-]+", "_", name).strip("._") or "step"
    return cleaned.encode()[:_LONGEST_NAME].decode(errors="ignore")


def is_record(file: Path) -> bool:
    """Tell whether a file, given from the run directory on, is a record of ours, not what a program left."""
    return file.name in _RECORDS and all(
        _DIRECTORY.fullmatch(part) or _ATTEMPT.fullmatch(part) for part in file.parts[:-1]
    )


def steps(parent: Path) -> list[Path]:
    """Return the numbered directories in `parent`, by number."""
    found = [(match, path) for path in parent.iterdir() if (match := _DIRECTORY.fullmatch(path.name))]
    return [path for match, path in sorted(found, key=lambda item: int(item[0]["number"]))]
