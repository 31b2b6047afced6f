"""Plugins that the configuration describes: `{check: files, glob: '*.pb'}` is `toolbox/checks/files.py`."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from toolbox.model.nearest import did_you_mean
from toolbox.model.text import shown

_PACKAGE = Path(__file__).parent.parent


def parse(package: str, model: str, key: str, spec: Mapping[str, Any]) -> Any:
    """Return the plugin that a mapping describes: the value of `key` is the name of its module.

    Args:
        package: of the plugins, `checks`.
        model: the class in the module.

    Raises:
        ValueError: there is no such plugin, or one of its fields is wrong.
    """
    if not isinstance(spec, Mapping):
        raise ValueError(  # noqa: TRY004  # as every other fault of a configuration
            f"{shown(spec)} is not a {key}: a mapping `{{{key}: NAME, ...}}` was expected"
        )
    name = str(spec.get(key))
    kind = _load(package, model, key, name)
    try:
        return kind.model_validate({field: value for field, value in spec.items() if field != key})
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}".removeprefix(": ") for fault in error.errors()]
        raise ValueError(f"{key} `{name}`: {'; '.join(faults)}") from None


@functools.cache
def _load(package: str, model: str, key: str, name: str) -> Any:
    known = [path.stem for path in (_PACKAGE / package).glob("[!_]*.py")]
    if name not in known:
        raise ValueError(f"unknown {key} `{name}`: {did_you_mean(name, known)}")
    return getattr(importlib.import_module(f"toolbox.{package}.{name}"), model)
