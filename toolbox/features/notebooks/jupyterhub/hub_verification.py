"""Checks before a run whether a hub accepts the token, and whether the token may start servers for the user."""

from __future__ import annotations

from typing import Final

from toolbox.features.notebooks.jupyterhub import hub_tokens
from toolbox.features.notebooks.jupyterhub.hub_api import HubAccess, HubApi
from toolbox.features.notebooks.jupyterhub.hub_errors import REQUIRED_SCOPES, HubError
from toolbox.features.notebooks.jupyterhub.hub_replies import TokenOwner
from toolbox.ground.model.errors import ConfigurationError, InfrastructureError
from toolbox.ground.model.verdicts import Cause

TIMEOUT: Final = 15.0
"""The seconds after which an unavailable hub is an error."""


def verify(label: str, access: HubAccess, user: str | None) -> None:
    """Check that a hub accepts the token, and that the token has the required scopes.

    Args:
        label: what needs the hub, such as "the target `hub`", for messages.
        user: the user whose servers are started; None for the owner of the token.

    Raises:
        ConfigurationError: the token or the user must be changed.
        InfrastructureError: the hub does not answer.
    """
    try:
        with HubApi(access) as api:
            owner = api.run(api.token_owner(seconds=TIMEOUT))
            _check_scopes(label, owner)
            api.run(api.servers(user or _name(api, owner), seconds=TIMEOUT))
    except HubError as error:
        if error.is_absent:
            hint = "check that `url` is the address of the hub with its path, and that the token may read the user"
            raise ConfigurationError(f"{label}: {error}\n{hint}") from error
        if error.cause is Cause.CONFIGURATION:
            raise ConfigurationError(f"{label}: {error}") from error
        raise InfrastructureError(f"{label}: {error}") from error


def _check_scopes(label: str, owner: TokenOwner) -> None:
    names = {scope.partition("!")[0] for scope in owner.scopes}
    if names and (missing := [scope for scope in REQUIRED_SCOPES if scope not in names]):
        raise ConfigurationError(
            f"{label}: the token lacks the scopes {', '.join(missing)}: docs/jupyterhub.md describes how to make one"
        )


def user_of_token(api: HubApi, seconds: float = TIMEOUT) -> str:
    """Return the name of the user to whom the token belongs.

    Raises:
        ConfigurationError: the token belongs to a service.
        HubError: the hub does not answer, or refuses the token.
    """
    return _name(api, api.run(api.token_owner(seconds=seconds)))


def _name(api: HubApi, owner: TokenOwner) -> str:
    """Return the name of a token's user, and store the token for deletions of this user's servers."""
    if not owner.name:
        raise ConfigurationError("the token belongs to a service of the hub: set `user` in the target")
    hub_tokens.remember(api.access.url, owner.name, api.access.token)
    return owner.name
