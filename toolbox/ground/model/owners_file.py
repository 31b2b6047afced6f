"""Reads OWNERS files, in the format of Prow: https://www.kubernetes.dev/docs/guide/owners/.

Only the lists `approvers` and `reviewers` count, at the top level or below `filters: {".*": ...}`. The names are
logins, or aliases that the file OWNERS_ALIASES defines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml

ALIASES_FILE: Final = "OWNERS_ALIASES"
_ALIASES: Final = "aliases"
_ROLES: Final = ("approvers", "reviewers")
_ANY_FILE: Final = ".*"
_LONGEST: Final = 1 << 18  # characters


def logins(owners: str, aliases: str = "") -> frozenset[str]:
    """Return the logins of the approvers and reviewers, in lower case.

    Args:
        owners: the text of an OWNERS file.
        aliases: the text of the OWNERS_ALIASES file; empty if there is none.

    Raises:
        ValueError: a text is not YAML, or is too long.
    """
    content = _mapping(_parsed(owners))
    any_file = _mapping(_mapping(content.get("filters")).get(_ANY_FILE))
    known = {name.lower(): list(_names(names)) for name, names in _aliases(aliases)}
    names = [name.lower() for block in (content, any_file) for role in _ROLES for name in _names(block.get(role))]
    return frozenset(login.lower() for name in names for login in known.get(name, [name]))


def _aliases(text: str) -> Iterator[tuple[str, Any]]:
    for name, names in _mapping(_mapping(_parsed(text)).get(_ALIASES)).items():
        yield str(name), names


def _parsed(text: str) -> Any:
    if len(text) > _LONGEST:
        raise ValueError(f"has more than {_LONGEST} characters")
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"is not YAML: {getattr(error, 'problem', None) or error}") from None


def _mapping(value: Any) -> Mapping[Any, Any]:
    return value if isinstance(value, Mapping) else {}


def _names(value: Any) -> Iterator[str]:
    yield from (str(name) for name in (value if isinstance(value, list) else ()))
