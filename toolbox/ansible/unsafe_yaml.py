"""Writes YAML for Ansible, in which text that is marked as data is never evaluated as a template.

`untrusted` marks all data in a play or an inventory, including keys. Without the mark, Ansible would evaluate
`{{ ... }}`, and also other delimiters in a text that begins with `#jinja2:`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from toolbox.ground.model import yaml_text

_TEXT: Final = "tag:yaml.org,2002:str"


class Untrusted(str):
    """Text that Ansible does not evaluate as a template."""

    __slots__ = ()


def untrusted(value: Any) -> Any:
    """Return a value in which every text is marked as data, and paths are replaced by marked text."""
    if isinstance(value, str | Path):
        return Untrusted(value)
    if isinstance(value, Mapping):
        return {untrusted(key): untrusted(item) for key, item in value.items()}
    return [untrusted(item) for item in value] if isinstance(value, list | tuple) else value


def dump(value: object) -> str:
    """Return a value as YAML for Ansible."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=sys.maxsize)


class _Dumper(yaml_text.Dumper):
    """Writes marked text with Ansible's tag `!unsafe`."""


def _represent_untrusted(dumper: _Dumper, text: Untrusted) -> yaml.ScalarNode:
    # ansible-core 2.19 ignores the quotes after this tag, so that `!unsafe "1.10"` becomes a number. A text that YAML
    # would read as a number, a date or `null` without quotes cannot be a template, so it needs no tag.
    is_text = dumper.resolve(yaml.ScalarNode, str(text), (True, False)) == _TEXT  # type: ignore[no-untyped-call]  # PyYAML has no types for it
    return dumper.represent_scalar("!unsafe" if is_text else _TEXT, str(text), style='"')


_Dumper.add_representer(Untrusted, _represent_untrusted)
