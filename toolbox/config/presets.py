"""Presets: named sets of changes, which can extend other presets.

The rules are those of TOPSAIL's `apply_preset`: entries in their order; `extends: [x, y]` applies x, then y, at
its place in that order; the last change wins; a value replaces what was there whole; no preset creates a field.
A preset may change another preset (`ci_presets.light["tests.gpu"]: 1`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from toolbox.config import paths
from toolbox.config.document import Document
from toolbox.model.errors import ConfigurationError
from toolbox.model.nearest import did_you_mean

BLOCK: Final = "ci_presets"
NAMES: Final = "names"
TO_APPLY: Final = "to_apply"
EXTENDS: Final = "extends"


def known(document: Document) -> list[str]:
    """Return the names of the presets of a document."""
    block = document.root.get(BLOCK)
    presets = block.items() if isinstance(block, dict) else ()
    return [name for name, value in presets if isinstance(name, str) and isinstance(value, dict)]


def to_apply(document: Document) -> list[str]:
    """Return the presets that the document itself asks for: `ci_presets.to_apply`.

    Raises:
        ConfigurationError: it is neither a name nor a list of names.
    """
    block = document.root.get(BLOCK)
    names = block.get(TO_APPLY) if isinstance(block, dict) else None
    if names is None:
        return []
    if isinstance(names, str):
        return [names]
    if isinstance(names, list) and all(isinstance(name, str) for name in names):
        return names
    where = document.where((BLOCK, TO_APPLY))
    raise ConfigurationError(f"{where}: `{BLOCK}.{TO_APPLY}` is {names!r}, a list of names was expected")


def apply(document: Document, name: str, *, chain: Sequence[str] = ()) -> None:
    """Apply a preset, and those that it extends, to a document.

    Args:
        chain: the presets whose `extends` led here, outermost first.

    Raises:
        ConfigurationError: a loop, an unknown preset or an unknown field.
    """
    if name in chain:
        where = document.where((BLOCK, chain[-1], EXTENDS))
        raise ConfigurationError(f"{where}: preset loop: {' -> '.join([*chain, name])}")
    entries = _entries(document, name, chain)
    _record(document, name)
    for key in list(entries):
        value = entries[key]
        if key == EXTENDS:
            for extended in _extended(document, name, value):
                apply(document, extended, chain=[*chain, name])
        else:
            _change(document, name, key, value, chain)


def _entries(document: Document, name: str, chain: Sequence[str]) -> dict[str, Any]:
    block = document.root.get(BLOCK)
    entries = block.get(name) if isinstance(block, dict) else None
    if isinstance(entries, dict):
        return entries
    if not chain:
        where, asked = document.source, ""
    else:
        where, asked = document.where((BLOCK, chain[-1], EXTENDS)), f", requested by {' -> '.join(chain)}"
    if entries is not None or (isinstance(block, dict) and name in block):
        raise ConfigurationError(f"{where}: `{BLOCK}.{name}` is {entries!r}, not a preset{asked}")
    hint = did_you_mean(name, known(document), label="presets")
    raise ConfigurationError(f"{where}: unknown preset `{name}`{asked}: {hint}")


def _record(document: Document, name: str) -> None:
    block = document.root[BLOCK]
    names = block.get(NAMES)
    applied = list(names) if isinstance(names, list) else []
    if name not in applied:
        block[NAMES] = [*applied, name]


def _extended(document: Document, name: str, value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return value
    where = document.where((BLOCK, name, EXTENDS))
    raise ConfigurationError(f"{where}: `extends` of preset `{name}` is {value!r}, a list of presets was expected")


def _change(document: Document, name: str, key: object, value: object, chain: Sequence[str]) -> None:
    location = document.location((BLOCK, name, str(key)))
    try:
        document.set(paths.parse(str(key)), value, layer=f"preset {name}", location=location)
    except paths.PathError as error:
        trail = " -> ".join([*chain, name])
        where = location or document.source
        raise ConfigurationError(f"{where}: preset {trail} cannot create a field: {error.detail}") from None
