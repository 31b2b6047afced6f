"""This module implements TOPSAIL's rules for presets with jsonpath-ng, which TOPSAIL uses too."""

import functools
from collections.abc import Iterable
from typing import Any

import jsonpath_ng.parser

parse = functools.lru_cache(jsonpath_ng.parser.parse)


class NoSuchField(Exception):
    """Raised where TOPSAIL's `get_config` finds no field."""


def get(document: dict[str, Any], path: str) -> Any:
    """Return the value at a path, or raise `NoSuchField`."""
    found = parse(path).find(document)
    if not found:
        raise NoSuchField(path)
    return found[0].value


def set_existing(document: dict[str, Any], path: str, value: object) -> None:
    """Replace the value at a path, or raise `NoSuchField`."""
    get(document, path)
    parse(path).update(document, value)


def apply_preset(document: dict[str, Any], name: str) -> None:
    """Apply the entries of a preset in order; the entry `extends` applies other presets."""
    values = get(document, f'ci_presets["{name}"]')
    names = get(document, "ci_presets.names") or []
    if name not in names:
        set_existing(document, "ci_presets.names", [*names, name])
    for key, value in values.items():
        if key == "extends":
            for extended in value:
                apply_preset(document, extended)
        else:
            set_existing(document, key, value)


def apply(document: dict[str, Any], names: Iterable[str]) -> list[str]:
    """Apply presets in order, remove `ci_presets.names` from the document, and return the removed names."""
    for name in names:
        apply_preset(document, name)
    applied: list[str] = document["ci_presets"].pop("names") or []
    return applied
