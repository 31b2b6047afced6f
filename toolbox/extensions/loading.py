"""Imports extensions, and makes objects of them: `{check: files, glob: '*.pb'}` is the check of `checks/files.py`."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from toolbox.extensions import discovery
from toolbox.extensions.discovery import Extension
from toolbox.extensions.protocols import BACKENDS, Extended_co, ExtendingTarget, Kind
from toolbox.model.nearest import did_you_mean
from toolbox.model.text import abbreviated, without_kind
from toolbox.system import places

log = logging.getLogger(__name__)


def parse(kind: Kind[Extended_co], spec: Mapping[str, Any]) -> Extended_co:
    """Return the extension that a mapping describes: the value of `kind.key` is the name of its module.

    Raises:
        ValueError: there is no such extension, it is broken, or one of its fields is wrong.
    """
    key = kind.key
    if not isinstance(spec, Mapping):
        raise ValueError(  # noqa: TRY004  # like any other fault of a configuration
            f"{abbreviated(spec)} is not a {key}: a mapping `{{{key}: NAME, ...}}` was expected"
        )
    name = str(spec.get(key))
    model = load(kind, name)
    try:
        found = model.model_validate({field: value for field, value in spec.items() if field != key})
    except ValidationError as error:
        faults = [
            f"{'.'.join(map(str, fault['loc']))}: {without_kind(fault['msg'])}".removeprefix(": ")
            for fault in error.errors()
        ]
        raise ValueError(f"{key} `{name}`: {'; '.join(faults)}") from None
    return cast("Extended_co", found)


def function(kind: Kind[Extended_co], extension: Extension) -> Extended_co:
    """Return an extension that is a function.

    Raises:
        ValueError: the extension is broken, or has no such function.
    """
    found = extension.attribute(kind.attribute)
    if not callable(found):
        raise ValueError(f"{extension.origin}: `{kind.attribute}` is not a function")  # noqa: TRY004  # as other faults
    return cast("Extended_co", found)


def load(kind: Kind[object], name: str) -> type[BaseModel]:
    """Return the model of an extension.

    Raises:
        ValueError: there is no such extension, or it is broken.
    """
    # Cached, because a matrix describes the same few extensions for each of its cells.
    return _load(kind, name, places.workspace())


def extending_targets() -> tuple[type[ExtendingTarget], ...]:
    """Return the targets of all backends that add fields to workloads, sorted by the names of the backends.

    All backends are imported, which takes a while. A backend that is broken is left out, and a warning says so.
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


@functools.cache
def _load(kind: Kind[object], name: str, _workspace: Path | None) -> type[BaseModel]:
    available = discovery.available(kind.folder)
    if name not in available:
        raise ValueError(f"unknown {kind.key} `{name}`: {did_you_mean(name, available)}")
    extension = available[name]
    model = extension.attribute(kind.attribute)
    if not inspect.isclass(model) or not issubclass(model, BaseModel):
        raise ValueError(f"{extension.origin}: `{kind.attribute}` is not a pydantic model")
    if missing := [member for member in kind.members if not hasattr(model, member)]:
        raise ValueError(f"{extension.origin}: `{kind.attribute}` has no `{missing[0]}`")
    return model
