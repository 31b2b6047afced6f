"""The tokens of hubs that this process may use: those of the configurations that it has read, or of the environment.

The ledger of a run contains no secrets, so a deletion finds the token of its hub here. A run and a resumed run read
the configuration with the target, and so does `resources reap PROJECT`. Without a project, `resources reap` uses the
environment variable.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

from toolbox.jupyterhub.hub_api import HubAccess
from toolbox.model.errors import ConfigurationError
from toolbox.model.secrets import Secret
from toolbox.system import environ

VARIABLE: Final = "JUPYTERHUB_API_TOKEN"
_lock = threading.Lock()
_tokens: dict[tuple[str, str], Secret] = {}


def remember(url: str, user: str, token: Secret) -> None:
    """Let later calls of `access` use a token of the configuration.

    Args:
        user: the user of the target; empty for the token's own user.
    """
    with _lock:
        _tokens[url, user] = token


def access(url: str, user: str, ca_file: Path | None) -> HubAccess:
    """Return how to reach a hub as a user, with the token of the configuration or else of the environment.

    Raises:
        ConfigurationError: there is no token for the hub.
    """
    with _lock:
        token = _tokens.get((url, user)) or _tokens.get((url, ""))
    value = environ.get(VARIABLE)
    if token is None and value:
        token = Secret(value, reference=f"env:{VARIABLE}")
    if token is None:
        raise ConfigurationError(
            f"there is no token for the hub {url}: set `token` in the target, as docs/jupyterhub.md describes, or the "
            f"environment variable {VARIABLE}"
        )
    return HubAccess(url, token, ca_file)
