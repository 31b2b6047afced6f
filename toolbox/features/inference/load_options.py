"""Reads the options of `inference load`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from toolbox.features.inference import case_files
from toolbox.features.inference.extra import EXTRA
from toolbox.features.inference.load_steps import Load
from toolbox.features.inference.local_worker import RunningServer
from toolbox.features.inference.standalone_load import StandaloneLoad
from toolbox.ground.model.errors import ConfigurationError, ConfigurationFaults, UsageError
from toolbox.ground.model.text import without_kind
from toolbox.ground.system import environ, extras

_OPTION: Final = re.compile(r"`(\w+)`")


def prepared(
    server: RunningServer, cases: Sequence[Path], *, fields: Mapping[str, Any], timeout: float
) -> StandaloneLoad:
    """Return the load that the options describe.

    Args:
        fields: the fields of the load; those that are None are left out.
        timeout: the time in seconds in which an answer must be complete.

    Raises:
        UsageError: an option is wrong, or a library is missing. The message names every wrong option.
        ConfigurationError: a case file is broken.
    """
    faults = server.faults()
    if server.url is not None and server.grpc is not None:
        faults.append("write either --url or --grpc: a load measures one protocol")
    load = None
    try:
        load = Load.model_validate({name: value for name, value in fields.items() if value is not None})
    except ValidationError as error:
        faults += [_fault(fault["loc"], fault["msg"]) for fault in error.errors()]
    if faults or load is None:
        raise UsageError(
            "\n  ".join(["inference load:", *faults]) if len(faults) > 1 else f"inference load: {faults[0]}"
        )
    extras.require(EXTRA, "inference load")
    return StandaloneLoad.of(server, load, _read(cases), timeout=timeout)


def _read(files: Sequence[Path]) -> list[case_files.Case]:
    cases: list[case_files.Case] = []
    faults: list[str] = []
    for file in files:
        try:
            cases += case_files.load(environ.expanded(file), shown=str(file))
        except ConfigurationError as error:
            faults += error.faults
    if faults:
        raise ConfigurationFaults(faults)
    return cases


def _fault(path: tuple[int | str, ...], message: str) -> str:
    """Return a fault of the load with the names of options in place of the names of fields."""
    text = _OPTION.sub(r"--\1", without_kind(message))
    if not path:
        return text
    option, *rest = path
    return f"--{option}{''.join(f'[{part}]' if isinstance(part, int) else f'.{part}' for part in rest)}: {text}"
