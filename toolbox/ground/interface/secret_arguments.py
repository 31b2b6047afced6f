"""Reads a secret to which a command line refers as `env:NAME` or `@FILE`.

A command line never contains the secret itself, because every user of the machine can read command lines.
"""

from __future__ import annotations

import re
from typing import Final

from toolbox.ground.model.secrets import Secret
from toolbox.ground.system import environ

FORMS: Final = "env:NAME or @FILE"
_LARGEST_FILE: Final = 1 << 20  # bytes; keys and registry configurations have a few KiB
_VARIABLE = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)")


def read(text: str) -> Secret:
    """Return the secret to which the text of an argument refers.

    Raises:
        ValueError: the text is not a reference, or the variable or the file cannot be read. The message does not repeat
            a text that is not a reference, because the text may be a secret.
    """
    if match := _VARIABLE.fullmatch(text):
        value = environ.get(match[1])
        if value is None:
            raise ValueError(f"the environment variable {match[1]} is not set, or is empty")
        return Secret(value, reference=text)
    if text.startswith("@") and len(text) > 1:
        return _from_file(text[1:])
    raise ValueError(
        "a command line must not contain a secret, because every user of the machine can read it: give env:NAME for "
        "an environment variable, or @FILE for the content of a file"
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
