"""TOPSAIL's rules for presets, restated plainly on the library with which it reads paths."""

import functools
from collections.abc import Iterable
from typing import Any

import jsonpath_ng.parser

parse = functools.lru_cache(jsonpath_ng.parser.parse)


class NoSuchField(Exception):
    """TOPSAIL's `get_config` found nothing."""


def get(document: dict[str, Any], path: str) -> Any:
    """The value at a path."""
    found = parse(path).find(document)
    if not found:
        raise NoSuchField(path)
    return found[0].value


def set_existing(document: dict[str, Any], path: str, value: object) -> None:
    """Replace the value at a path, which must exist."""
    get(document, path)
    parse(path).update(document, value)


def apply_preset(document: dict[str, Any], name: str) -> None:
    """Apply a preset, and those that it extends at their place among its entries."""
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
    """Apply presets in their order, and return `ci_presets.names`, which is taken out of the document."""
    for name in names:
        apply_preset(document, name)
    applied: list[str] = document["ci_presets"].pop("names") or []
    return applied
