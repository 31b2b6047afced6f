"""Finds unknown names, and the known names that are most similar to one, for error messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pydantic import BaseModel

_MISSPELLED: Final = 0.8  # the least similarity, from 0 to 1, of a misspelled name to the correct name


def nearest(name: str, known_names: Iterable[str], *, limit: int = 3) -> list[str]:
    """Return the known names that are most similar to a name, the most similar name first."""
    return difflib.get_close_matches(name, list(known_names), n=limit, cutoff=0.5)


def misspelled(name: str, known_names: Iterable[str]) -> str | None:
    """Return the known name that `name` misspells; None if `name` is a different word.

    A longer word that begins with a known name is a different word: `machineset` does not misspell `machine`. A plural
    is a misspelling.
    """
    similar = difflib.get_close_matches(name, list(known_names), n=1, cutoff=_MISSPELLED)
    if not similar or (name.startswith(similar[0]) and len(name) > len(similar[0]) + 1):
        return None
    return similar[0]


def unread_fields(model: type[BaseModel], names: Iterable[object]) -> list[str]:
    """Return the names that a pydantic model drops without a word, because it does not set `extra`.

    A model whose fields have several aliases is not examined.
    """
    if model.model_config.get("extra") is not None or "root" in model.model_fields:
        return []
    fields = model.model_fields.values()
    aliases = [alias for field in fields for alias in (field.alias, field.validation_alias) if alias is not None]
    if not all(isinstance(alias, str) for alias in aliases):
        return []
    return [str(name) for name in names if name not in {*model.model_fields, *aliases}]


def did_you_mean(name: str, known_names: Iterable[str], *, label: str, prefix: str = "", most: int = 12) -> str:
    """Return `did you mean ...?` with the similar names, or `the LABEL are ...` with all names if no name is similar.

    Args:
        label: the plural of what the names denote, such as `presets`.
        prefix: the text to put before each name.
        most: the largest number of names to list.
    """
    known = set(known_names)
    if similar_names := nearest(name, sorted(known)):
        return f"did you mean {' or '.join(prefix + similar_name for similar_name in similar_names)}?"
    return listed((prefix + each for each in known), label, most=most)


def listed(all_names: Iterable[str], label: str, *, most: int = 12) -> str:
    """Return `the LABEL are ...` with the sorted names, or `there are no LABEL`."""
    names = sorted(set(all_names))
    if not names:
        return f"there are no {label}"
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"the {label} are {', '.join(names[:most])}{more}"
