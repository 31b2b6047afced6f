"""Checks that optional libraries are installed, and names the command that installs them."""

from __future__ import annotations

import importlib
import importlib.util
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from toolbox.ground.model.errors import ConfigurationError
from toolbox.ground.model.text import first_of
from toolbox.ground.system import places


@dataclass(frozen=True, slots=True)
class Extra:
    """An extra of pyproject.toml.

    Args:
        modules: the modules that the extra installs.
    """

    name: str
    modules: Sequence[str]


POSTGRES: Final = Extra("postgres", ("psycopg",))
STORAGE: Final = Extra("storage", ("fsspec", "s3fs", "gcsfs", "dateutil"))
_MAX_NAMED: Final = 2  # missing libraries: the command installs them all


def require(extra: Extra, feature: str) -> None:
    """Check that the libraries of an extra are installed, without importing them.

    Args:
        feature: the feature that needs the libraries, for the message.

    Raises:
        ConfigurationError: a library is missing. The message contains the command that installs the extra.
    """
    missing = [name for name in extra.modules if not _is_installed(name)]
    if missing:
        named = first_of(missing, _MAX_NAMED)
        libraries = f"{', '.join(named)}, which {'is' if len(missing) == 1 else 'are'} not installed"
        raise ConfigurationError(f"{feature} needs {libraries}: {install_command(extra)}")


def of_feature(feature: str) -> Extra:
    """Return the extra of a feature, which has the name of the feature."""
    extra: Extra = importlib.import_module(f"toolbox.features.{feature}.extra").EXTRA
    return extra


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # a package that contains the module is missing
        return False


def install_command(extra: Extra) -> str:
    """Return the command line that installs an extra for the Python interpreter of this process."""
    root = places.builtin_root()
    is_checkout = (root / "pyproject.toml").is_file()
    package = ["--editable", f"{root}[{extra.name}]"] if is_checkout else [f"topgallant[{extra.name}]"]
    return shlex.join([sys.executable, "-m", "pip", "install", *package])
