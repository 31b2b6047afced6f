"""Reads the secrets of a command line, which names each as `env:NAME` or `@FILE`.

Every user of a machine can read the command lines of its processes, so a secret itself is never in one.
"""

from __future__ import annotations

import re
from typing import Final

from toolbox.model.secrets import Secret
from toolbox.system import environ

HOW: Final = "env:NAME or @FILE"
_LARGEST_FILE: Final = 1 << 20  # bytes; keys and configurations of registries are some KiB
_VARIABLE = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)")


def read(text: str) -> Secret:
    """Return the secret to which the text of an argument refers.

    Raises:
        ValueError: the text is no reference, or there is no such variable or file. The message never has the text of
            anything but a reference.
    """
    if match := _VARIABLE.fullmatch(text):
        value = environ.get(match[1])
        if value is None:
            raise ValueError(f"the environment variable {match[1]} is not set, or is empty")
        return Secret(value, reference=text)
    if text.startswith("@") and len(text) > 1:
        return _from_file(text[1:])
    raise ValueError(
        "a secret is not written on a command line, where every user of the machine can read it: give env:NAME for an "
        "environment variable, or @FILE for the content of a file"
    )


def _from_file(name: str) -> Secret:
    file = environ.expanded(name).absolute()
    try:
        with file.open("rb") as stream:
            content = stream.read(_LARGEST_FILE + 1)
        text = content.decode().strip()
    except UnicodeDecodeError:
        raise ValueError(f"the file {file} is not UTF-8 text") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"the file {file} cannot be read: {reason}") from None
    if len(content) > _LARGEST_FILE:
        raise ValueError(f"the file {file} has more than {_LARGEST_FILE >> 20} MiB, which is too large for a secret")
    if not text:
        raise ValueError(f"the file {file} is empty")
    return Secret(text, reference=f"@{file}")
