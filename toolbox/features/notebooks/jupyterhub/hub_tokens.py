"""The tokens of hubs that this process can use. They come from the configurations that it has read, or from the
environment.

The ledger of a run contains no secrets, so a deletion takes the token of its hub from this module. A run, a resumed run
and `resources reap PROJECT` read the configuration with the target. Without a project, `resources reap` uses the
environment variable.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

from toolbox.features.notebooks.jupyterhub.hub_api import HubAccess
from toolbox.ground.model.errors import ConfigurationError
from toolbox.ground.model.secrets import Secret
from toolbox.ground.system import environ

VARIABLE: Final = "JUPYTERHUB_API_TOKEN"
_lock = threading.Lock()
_tokens: dict[tuple[str, str], Secret] = {}


def remember(url: str, user: str, token: Secret) -> None:
    """Store a token of the configuration for later calls of `access`.

    Args:
        user: the user of the target; empty for the token's own user.
    """
    with _lock:
        _tokens[url, user] = token


def access(url: str, user: str, ca_file: Path | None) -> HubAccess:
    """Return the access to a hub for a user, with the token of the configuration, or else of the environment.

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
