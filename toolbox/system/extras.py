"""The optional client libraries: checks that they are installed, and knows how to install them."""

from __future__ import annotations

import importlib.util
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from toolbox.model.errors import ConfigurationError
from toolbox.system import places

Extra = Literal["kubernetes", "postgres"]
# The modules of each extra in pyproject.toml.
MODULES: Final[Mapping[Extra, Sequence[str]]] = {
    "kubernetes": ("kubernetes", "orjson", "websocket", "certifi"),
    "postgres": ("psycopg",),
}


def require(extra: Extra, what: str) -> None:
    """Check that the libraries of an extra are installed, without importing them.

    Args:
        what: the feature that needs them, for the message.

    Raises:
        ConfigurationError: a library is missing; the message has the command that installs it.
    """
    missing = [name for name in MODULES[extra] if importlib.util.find_spec(name) is None]
    if missing:
        libraries = ", ".join(missing)
        raise ConfigurationError(f"{what} needs {libraries}, not installed here: {install_command(extra)}")


def install_command(extra: Extra) -> str:
    """Return the command that installs an extra for the Python that runs this program."""
    root = places.builtin_root()
    is_checkout = (root / "pyproject.toml").is_file()
    package = ["--editable", f"{root}[{extra}]"] if is_checkout else [f"topgallant[{extra}]"]
    return shlex.join([sys.executable, "-m", "pip", "install", *package])
