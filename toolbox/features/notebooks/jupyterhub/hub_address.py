"""The address of a JupyterHub, and the names of its users and servers. They come from the configuration or a ledger."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Final
from urllib.parse import quote, urlsplit

from pydantic import AfterValidator, Field

_LONGEST: Final = 255
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]*")
_LOOPBACK_NAMES: Final = frozenset({"localhost", "localhost.localdomain"})


def hub_url(text: str) -> str:
    """Return the address of a hub without the slash at its end.

    Raises:
        ValueError: the text is not the address of a hub, or contains a password.
    """
    parts = urlsplit(text)
    _ = parts.port  # raises ValueError if the port is not a number
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise ValueError("the address of a hub begins with https:// or http://")
    if parts.username is not None or parts.query or parts.fragment or not text.isprintable() or " " in text:
        raise ValueError("the address of a hub contains no user, password, query or fragment")
    return text.rstrip("/").removesuffix("/hub/api").removesuffix("/hub")


def is_loopback(url: str) -> bool:
    """Return whether an address is on this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in _LOOPBACK_NAMES


def user_path(user: str) -> str:
    """Return the path of a user in the REST API."""
    return f"/hub/api/users/{quote(user, safe='')}"


def server_path(user: str, server: str) -> str:
    """Return the path of a named server in the REST API."""
    return f"{user_path(user)}/servers/{quote(server, safe='')}"


def server_url(hub: str, user: str, server: str) -> str:
    """Return the address of a named server behind the proxy of the hub.

    The address is made from the configuration. If the `url` in a reply of the hub were used, the token could be sent to
    another host.
    """
    return f"{hub}/user/{quote(user, safe='@')}/{quote(server, safe='')}"


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError("a name consists of letters, digits, `.`, `_`, `@`, `+` and `-`")
    return text


HubUrl = Annotated[str, Field(max_length=2000), AfterValidator(hub_url)]


def _user(text: str) -> str:
    if not text.isprintable() or "/" in text or text in (".", ".."):
        raise ValueError("the name of a user contains no `/` and no control characters")
    return text


ServerName = Annotated[str, Field(min_length=1, max_length=_LONGEST), AfterValidator(_name)]
UserName = Annotated[str, Field(min_length=1, max_length=_LONGEST), AfterValidator(_user)]
