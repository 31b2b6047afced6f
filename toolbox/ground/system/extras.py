"""Checks that optional libraries are installed, and names the command that installs them."""

from __future__ import annotations

import importlib.util
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from toolbox.ground.model.errors import ConfigurationError
from toolbox.ground.model.text import first_of
from toolbox.ground.system import places

Extra = Literal[
    "github", "gitlab", "inference", "kubernetes", "notebooks", "notifications", "postgres", "storage", "tpu"
]
# The modules that each extra of pyproject.toml installs.
MODULES: Final[Mapping[Extra, Sequence[str]]] = {
    "github": ("github",),
    "gitlab": ("gitlab",),
    "inference": ("httpx", "h11", "grpc", "starlette", "uvicorn", "re2", "rapidfuzz"),
    "kubernetes": ("kubernetes", "orjson", "websocket", "certifi"),
    "notebooks": (
        *("papermill", "nbclient", "nbformat", "jupyter_client", "ipykernel", "pynvml", "nbconvert", "httpx"),
        *("tornado", "nh3"),
    ),
    "notifications": ("httpx",),
    "postgres": ("psycopg",),
    "storage": ("fsspec", "s3fs", "gcsfs", "dateutil"),
    "tpu": ("google.cloud.tpu_v2",),
}

_MOST_NAMED: Final = 2  # missing libraries: the command installs them all


def require(extra: Extra, feature: str) -> None:
    """Check that the libraries of an extra are installed, without importing them.

    Args:
        feature: the feature that needs the libraries, for the message.

    Raises:
        ConfigurationError: a library is missing. The message contains the command that installs the extra.
    """
    missing = [name for name in MODULES[extra] if not _is_installed(name)]
    if missing:
        named = first_of(missing, _MOST_NAMED)
        libraries = f"{', '.join(named)}, which {'is' if len(missing) == 1 else 'are'} not installed"
        raise ConfigurationError(f"{feature} needs {libraries}: {install_command(extra)}")


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # a package that contains the module is missing
        return False


def install_command(extra: Extra) -> str:
    """Return the command line that installs an extra for the Python interpreter of this process."""
    root = places.builtin_root()
    is_checkout = (root / "pyproject.toml").is_file()
    package = ["--editable", f"{root}[{extra}]"] if is_checkout else [f"topgallant[{extra}]"]
    return shlex.join([sys.executable, "-m", "pip", "install", *package])
