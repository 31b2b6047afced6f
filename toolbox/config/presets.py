"""Applies presets: named sets of changes, which can extend other presets.

The rules are those of TOPSAIL's `apply_preset`. The entries of a preset are applied in order, and `extends: [x, y]`
applies the presets x and y at its position. A later change overrides an earlier one. A value replaces the old value as
a whole, and a preset never creates a field. A preset may change another preset (`ci_presets.light["tests.gpu"]: 1`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from toolbox.config import paths
from toolbox.config.document import Document
from toolbox.ground.model.errors import ConfigurationError
from toolbox.ground.model.nearest import did_you_mean

BLOCK: Final = "ci_presets"
NAMES: Final = "names"
TO_APPLY: Final = "to_apply"
EXTENDS: Final = "extends"


def names(document: Document) -> list[str]:
    """Return the names of the presets in a document."""
    block = document.root.get(BLOCK)
    presets = block.items() if isinstance(block, dict) else ()
    return [name for name, value in presets if isinstance(name, str) and isinstance(value, dict)]


def to_apply(document: Document) -> list[str]:
    """Return the names of the presets in `ci_presets.to_apply` of a document.

    Raises:
        ConfigurationError: the value is neither a name nor a list of names.
    """
    block = document.root.get(BLOCK)
    value = block.get(TO_APPLY) if isinstance(block, dict) else None
    if value is None:
        return []
    return _names_in(document, TO_APPLY, value=value, rule=f"`{BLOCK}.{TO_APPLY}` must be a list of names")


def apply(document: Document, name: str, *, chain: Sequence[str] = (), reason: str = "") -> None:
    """Apply a preset, and the presets that it extends, to a document.

    Args:
        chain: the presets that extend this preset, outermost first.
        reason: why the preset was selected, for explanations; empty if a person named it.

    Raises:
        ConfigurationError: a preset extends itself, or a preset or a field is unknown.
    """
    if name in chain:
        where = document.where((BLOCK, chain[-1], EXTENDS))
        raise ConfigurationError(f"{where}: the presets form a loop: {' -> '.join([*chain, name])}")
    entries = _entries(document, name, chain)
    _record(document, name)
    for key in list(entries):
        value = entries[key]
        if key == EXTENDS:
            rule = f"`{EXTENDS}` of preset `{name}` must be a list of presets"
            for extended in _names_in(document, name, EXTENDS, value=value, rule=rule):
                apply(document, extended, chain=[*chain, name], reason=reason)
        else:
            _change(document, name, key, value, chain, f", {reason}" if reason else "")


def _entries(document: Document, name: str, chain: Sequence[str]) -> dict[str, Any]:
    block = document.root.get(BLOCK)
    entries = block.get(name) if isinstance(block, dict) else None
    if isinstance(entries, dict):
        return entries
    if not chain:
        where, requester = document.source, ""
    else:
        where, requester = document.where((BLOCK, chain[-1], EXTENDS)), f", requested by {' -> '.join(chain)}"
    if entries is not None or (isinstance(block, dict) and name in block):
        raise ConfigurationError(f"{where}: `{BLOCK}.{name}` is {entries!r}, not a preset{requester}")
    hint = did_you_mean(name, names(document), label="presets")
    raise ConfigurationError(f"{where}: unknown preset `{name}`{requester}: {hint}")


def _record(document: Document, name: str) -> None:
    block = document.root[BLOCK]
    earlier = block.get(NAMES)
    applied = list(earlier) if isinstance(earlier, list) else []
    if name not in applied:
        block[NAMES] = [*applied, name]


def _names_in(document: Document, *field: str, value: object, rule: str) -> list[str]:
    """Return the names in a field of the block, which may be one name or a list of names."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return value
    raise ConfigurationError(f"{document.where((BLOCK, *field))}: {rule}, not {value!r}")


def _change(document: Document, name: str, key: object, value: object, chain: Sequence[str], reason: str) -> None:
    location = document.location((BLOCK, name, str(key)))
    try:
        document.set(paths.parse(str(key)), value, layer=f"preset {name}{reason}", location=location)
    except paths.PathError as error:
        trail = " -> ".join([*chain, name])
        where = location or document.source
        raise ConfigurationError(f"{where}: preset {trail} cannot create a field: {error.detail}") from None
