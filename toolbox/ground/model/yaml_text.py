"""Writes values as YAML text: without aliases, with the keys in their order, and with references instead of secrets."""

from __future__ import annotations

import functools
import re
import sys
from pathlib import Path
from typing import Any, Final

import yaml

from toolbox.ground.model import yaml_scalars
from toolbox.ground.model.secrets import MASK, Secret

_BREAKS = re.compile("[\x85\u2028\u2029]")


class Dumper(yaml.SafeDumper):
    """Writes YAML without aliases."""

    def ignore_aliases(self, _data: Any) -> bool:
        """Return True, so that an object that occurs twice is written twice."""
        return True

    def analyze_scalar(self, scalar: str) -> Any:
        """Allow only double quotes for a text with Unicode line breaks: in other styles, parsers change them."""
        styles = super().analyze_scalar(scalar)
        if _BREAKS.search(scalar):
            styles.allow_flow_plain = styles.allow_block_plain = styles.allow_single_quoted = styles.allow_block = False
        return styles


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


yaml_scalars.read_exponents(Dumper)
Dumper.add_representer(str, _represent_text)
Dumper.add_multi_representer(str, _represent_text)
Dumper.add_representer(Secret, lambda dumper, secret: dumper.represent_str(secret.reference or MASK))
Dumper.add_multi_representer(Path, lambda dumper, path: dumper.represent_str(str(path)))


_SIMPLE: Final = (str, int, float, bool, type(None))


def dump(value: object) -> str:
    """Return a value as YAML, without sorting the keys."""
    if isinstance(value, dict) and value and all(type(item) in _SIMPLE for pair in value.items() for item in pair):
        # The lines of such a mapping do not depend on one another. Writing YAML is slow, and the cells of a matrix
        # have the same settings again and again.
        return "".join(_item(key, item) for key, item in value.items())
    return _dump(value)


def _item(key: object, value: object) -> str:
    if type(value) is int:  # a whole number is often different in each cell
        return _line(key, 0).removesuffix("0\n") + f"{value}\n"
    return _line(key, value)


@functools.lru_cache(maxsize=1024, typed=True)
def _line(key: object, value: object) -> str:
    return _dump({key: value})


def _dump(value: object) -> str:
    return yaml.dump(value, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=sys.maxsize)


class _LineDumper(Dumper):
    """Writes a value on one line."""


_LineDumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"' if "\n" in text else None),
)


def printed(value: object) -> str:
    """Return a value as YAML to print: without the last line break, and without the end mark `...` of a scalar."""
    return dump(value).removesuffix("...\n").rstrip("\n")


def dump_line(value: object) -> str:
    """Return a value as YAML on one line."""
    text = yaml.dump(
        value, Dumper=_LineDumper, default_flow_style=True, sort_keys=False, allow_unicode=True, width=sys.maxsize
    )
    return text.removesuffix("\n").removesuffix("\n...")
