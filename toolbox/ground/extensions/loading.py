"""Imports extensions, and creates objects from the configuration.

For example, `{check: files, glob: '*.pb'}` becomes an object of the class `Check` in `checks/files.py`.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from toolbox.ground.extensions import discovery
from toolbox.ground.extensions.discovery import Extension
from toolbox.ground.extensions.protocols import BACKENDS, RESOURCES, Extended_co, ExtendingTarget, Kind
from toolbox.ground.model import null_fields
from toolbox.ground.model.nearest import did_you_mean, unread_fields
from toolbox.ground.model.text import abbreviated, without_kind
from toolbox.ground.system import places

log = logging.getLogger(__name__)


def parse(kind: Kind[Extended_co], spec: Mapping[str, Any]) -> Extended_co:
    """Return the object that a mapping of the configuration describes.

    Args:
        spec: the mapping. The value of `kind.key` is the name of the extension; all other keys are its fields.

    Raises:
        ValueError: the extension does not exist or is broken, or one of its fields is invalid.
    """
    key = kind.key
    if not isinstance(spec, Mapping):
        raise ValueError(  # noqa: TRY004  # callers expect ValueError for every fault of the configuration
            f"a {key} must be a mapping `{{{key}: NAME, ...}}`, not {abbreviated(spec)}"
        )
    name = str(spec.get(key))
    model = load(kind, name)
    fields = {field: value for field, value in spec.items() if field != key}
    # The ledger describes resources, which must be deleted in any case.
    if kind is not RESOURCES and (unread := unread_fields(model, fields)):
        hint = did_you_mean(unread[0], model.model_fields, label="fields")
        raise ValueError(f"{key} `{name}`: {abbreviated(unread[0])} is an unknown field: {hint}")
    try:
        parsed = null_fields.validate(model, fields)
    except ValidationError as error:
        faults = [
            f"{'.'.join(map(str, fault['loc']))}: {without_kind(fault['msg'])}".removeprefix(": ")
            for fault in error.errors()
        ]
        raise ValueError(f"{key} `{name}`: {'; '.join(faults)}") from None
    return cast("Extended_co", parsed)


def function(kind: Kind[Extended_co], extension: Extension) -> Extended_co:
    """Import an extension that is a function, such as a report, and return the function.

    Raises:
        ValueError: the extension is broken, or does not contain the function.
    """
    attribute = extension.attribute(kind.attribute)
    if not callable(attribute):
        message = f"{extension.origin}: `{kind.attribute}` is not a function"
        raise ValueError(message)  # noqa: TRY004  # callers expect ValueError for every broken extension
    return cast("Extended_co", attribute)


def instance(kind: Kind[Extended_co], extension: Extension) -> Extended_co:
    """Import an extension that is a class without fields, such as a forge, and return an object of the class.

    Raises:
        ValueError: the extension is broken, or its class does not have all methods.
    """
    attribute = extension.attribute(kind.attribute)
    if not inspect.isclass(attribute):
        message = f"{extension.origin}: `{kind.attribute}` is not a class"
        raise ValueError(message)  # callers expect ValueError for every broken extension
    _require_members(kind, attribute, extension)
    try:
        return cast("Extended_co", attribute())
    except Exception as error:
        raise ValueError(f"{extension.origin} is broken: {type(error).__name__}: {error}") from error


def load(kind: Kind[object], name: str) -> type[BaseModel]:
    """Import an extension, and return its pydantic model.

    Raises:
        ValueError: the extension does not exist, or is broken.
    """
    return _load(kind, name, places.workspace())


def extending_targets() -> tuple[type[ExtendingTarget], ...]:
    """Return the targets that add fields to workloads, sorted by the names of their backends.

    The function imports all backends, which is slow. A broken backend is skipped with a warning.
    """
    return _extending_targets(places.workspace())


@functools.cache
def _extending_targets(_workspace: Path | None) -> tuple[type[ExtendingTarget], ...]:
    targets: list[type[BaseModel]] = []
    for name in sorted(discovery.available(BACKENDS.folder)):
        try:
            targets.append(load(BACKENDS, name))
        except ValueError as error:
            log.warning("%s", error)
    return tuple(cast("type[ExtendingTarget]", target) for target in targets if hasattr(target, "workload_fields"))


@functools.cache  # a matrix uses the same few extensions for each of its cells
def _load(kind: Kind[object], name: str, _workspace: Path | None) -> type[BaseModel]:
    available = discovery.available(kind.folder)
    if name not in available:
        raise ValueError(f"unknown {kind.key} `{name}`: {did_you_mean(name, available, label=f'{kind.key}s')}")
    extension = available[name]
    model = extension.attribute(kind.attribute)
    if not inspect.isclass(model) or not issubclass(model, BaseModel):
        raise ValueError(f"{extension.origin}: `{kind.attribute}` is not a pydantic model")
    _require_members(kind, model, extension)
    return model


def _require_members(kind: Kind[object], model: type, extension: Extension) -> None:
    if missing := [member for member in kind.members if not hasattr(model, member)]:
        raise ValueError(f"{extension.origin}: `{kind.attribute}` has no `{missing[0]}`")
