"""Checks the lines of a requirements file: a line must not make pip read other files or work in another way.

A line is a requirement as in PEP 508, or one of the options in `OPTIONS`. Options that read files which the run does
not send (`-r`, `-c`), or install a directory that can change later (`-e`), are refused.
"""

from __future__ import annotations

import hashlib
import re
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

_WITH_VALUE: Final = (
    "-i",
    "--index-url",
    "--extra-index-url",
    "-f",
    "--find-links",
    "--only-binary",
    "--no-binary",
    "--trusted-host",
)
OPTIONS: Final = (*_WITH_VALUE, "--no-index", "--prefer-binary", "--pre", "--require-hashes")  # of lines
_HASH: Final = "--hash"
_KERNEL: Final = "ipykernel"
_COMMENT: Final = re.compile(r"(^|\s+)#.*$")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LOCAL: Final = re.compile(r"^(?:file:|[./~])|\bfile:|\.whl$|\.tar\.gz$|\.zip$", re.IGNORECASE)


class InvalidRequirementError(ValueError):
    """A line that the worker refuses. The message names the line."""


def normalized(lines: Sequence[str]) -> list[str]:
    """Return the lines without comments and continuations.

    Raises:
        InvalidRequirementError: a line is neither a requirement nor an allowed option.
    """
    requirements = [" ".join(line.split()) for line in _logical_lines(lines)]
    for line in requirements:
        _check(line)
    return requirements


def with_kernel(lines: Sequence[str]) -> list[str]:
    """Return the lines with ipykernel, which a kernel in the environment needs."""
    has_kernel = any(_name(line) == _KERNEL for line in _logical_lines(lines))
    return [*lines] if has_kernel else [*lines, _KERNEL]


def digest(lines: Sequence[str], interpreter: Sequence[str]) -> str:
    """Return the name of the environment for normalized lines and an interpreter.

    The order of the lines does not matter. If a line names a wheel or an archive on this machine, its content is part
    of the digest.
    """
    content = hashlib.sha256()
    content.update(f"{list(interpreter)}\n".encode())
    for line in sorted(set(lines)):
        content.update(f"{line}\n".encode())
        if path := local_file(line):
            content.update(path.read_bytes())
    return content.hexdigest()[:32]


def local_file(line: str) -> Path | None:
    """Return the file of this machine that a requirement names; None if the line names no file."""
    if line.startswith("-"):
        return None
    place = line.partition("@")[2].strip() if "@" in line else line
    place = place.split(" ")[0].partition("#")[0]
    if place.startswith("file:"):
        return Path(urllib.request.url2pathname(urllib.parse.urlsplit(place).path))
    return Path(place) if place.startswith("/") else None


def _logical_lines(lines: Sequence[str]) -> Iterator[str]:
    """Join lines that end with a backslash, and omit comments and empty lines."""
    text = "\n".join(lines)
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        if stripped := _COMMENT.sub("", line).strip():
            yield stripped


def _check(line: str) -> None:
    if not line.isprintable():
        raise InvalidRequirementError(f"the requirement {line!r} contains a character that cannot be printed")
    first, *rest = line.split(" ")
    if first.startswith("-"):
        _check_option(line, first)
        rest = rest[1:] if first in _WITH_VALUE else rest
    elif _LOCAL.search(first) or " @ file:" in line:
        _check_local(line)
    elif not _NAME.match(first):
        raise InvalidRequirementError(f"`{line}` is not a requirement such as `numpy>=2`")
    for word in rest:
        if word.startswith("-") and word.partition("=")[0] != _HASH:
            raise InvalidRequirementError(f"`{line}`: only the option {_HASH} is allowed after a requirement")


def _check_option(line: str, option: str) -> None:
    name = option.partition("=")[0]
    if name not in OPTIONS and not re.match(r"-[if][^-]", name):
        raise InvalidRequirementError(
            f"`{line}`: the option {name} is not allowed in `requirements`; allowed are {', '.join(OPTIONS)}"
        )


def _check_local(line: str) -> None:
    path = local_file(line)
    if path is None:
        raise InvalidRequirementError(f"`{line}`: give the absolute path of a wheel or an archive on the target")
    if not path.is_file():
        raise InvalidRequirementError(f"`{line}`: {path} is not a file; build a wheel if it is a directory")


def _name(line: str) -> str:
    match = _NAME.match(line)
    return re.sub(r"[-_.]+", "-", match[0]).lower() if match else ""
