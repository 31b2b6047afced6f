"""Plugins that the configuration describes: `{check: files, glob: '*.pb'}` is the check of `checks/files.py`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from toolbox.model.nearest import did_you_mean
from toolbox.model.text import shown, without_kind
from toolbox.system import extensions, places

# What the model of each kind has to have: see the protocols in `toolbox.matrix`.
_MEMBERS: Final = {
    "checks": ("judge",),
    "metrics": ("read",),
    "backends": ("open", "address", "accept", "verify", "keeps_attempts", "is_machine"),
}


def parse(package: str, model: str, key: str, spec: Mapping[str, Any]) -> Any:
    """Return the plugin that a mapping describes: the value of `key` is the name of its module.

    Args:
        package: the kind of the plugins, `checks`; see `toolbox.system.extensions`.
        model: the class in the module.

    Raises:
        ValueError: there is no such plugin, it is broken, or one of its fields is wrong.
    """
    if not isinstance(spec, Mapping):
        raise ValueError(  # noqa: TRY004  # as every other fault of a configuration
            f"{shown(spec)} is not a {key}: a mapping `{{{key}: NAME, ...}}` was expected"
        )
    name = str(spec.get(key))
    kind = load(package, model, key, name)
    try:
        return kind.model_validate({field: value for field, value in spec.items() if field != key})
    except ValidationError as error:
        faults = [
            f"{'.'.join(map(str, fault['loc']))}: {without_kind(fault['msg'])}".removeprefix(": ")
            for fault in error.errors()
        ]
        raise ValueError(f"{key} `{name}`: {'; '.join(faults)}") from None


def load(package: str, model: str, key: str, name: str) -> type[BaseModel]:
    """Return the class of a plugin. See `parse`.

    Raises:
        ValueError: there is no such plugin, or it is broken.
    """
    # A matrix describes the same few plugins for each of its cells.
    return _load(package, model, key, name, places.workspace())


@functools.cache
def _load(package: str, model: str, key: str, name: str, _workspace: Path | None) -> type[BaseModel]:
    available = extensions.available(package)
    if name not in available:
        raise ValueError(f"unknown {key} `{name}`: {did_you_mean(name, available)}")
    extension = available[name]
    kind = extension.attribute(model)
    if not inspect.isclass(kind) or not issubclass(kind, BaseModel):
        raise ValueError(f"{extension.origin}: `{model}` is not a pydantic model")
    if missing := [member for member in _MEMBERS[package] if not hasattr(kind, member)]:
        raise ValueError(f"{extension.origin}: `{model}` has no `{missing[0]}`")
    return kind
