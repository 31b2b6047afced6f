"""Finds the proxy for the requests to a cluster, as curl and kubectl do. `access.py` gives it to the official client.

The official client and the library for websockets each read the variables in their own way, and ignore the user and the
password of a proxy.
"""

from __future__ import annotations

import base64
import ipaddress
import re
from dataclasses import dataclass, field
from typing import Any, Final, Self
from urllib.parse import unquote, urlsplit

from toolbox.ground.model.errors import ConfigurationError
from toolbox.ground.system import environ

_PORTS: Final = {"http": 80, "https": 443}
_SOCKS: Final = ("socks4", "socks4a", "socks5", "socks5h")
_ENTRY: Final = re.compile(r"(.+?)(?::([0-9]{1,5}))?")
_NOWHERE: Final = "none.invalid"  # an entry that matches no host, and replaces those of the environment


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy. Its text is its address without the user and the password.

    Args:
        url: the whole address.
    """

    scheme: str
    host: str
    port: int
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    url: str = field(default="", repr=False)

    @classmethod
    def parse(cls, text: str, source: str) -> Self:
        """Read the address of a proxy. Without a scheme, it is `http`.

        Args:
            source: the variable or the field with the address, for errors.

        Raises:
            ConfigurationError: the address is not valid.
        """
        text = text if "://" in text else f"http://{text}"
        try:
            parts = urlsplit(text)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if not host or parts.scheme not in (*_PORTS, *_SOCKS):
            raise ConfigurationError(f"{source} is not the address of a proxy: write http://HOST:PORT")
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        return cls(parts.scheme, host, port or _PORTS.get(parts.scheme, 1080), user, password, text)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def client_url(self) -> str:
        """The address for the official client, which reads the user only from the address of a SOCKS proxy."""
        return self.url if self.scheme in _SOCKS else str(self)

    @property
    def headers(self) -> dict[str, str] | None:
        """The header that authenticates a request to the proxy."""
        if not (self.user or self.password) or self.scheme in _SOCKS:
            return None
        return {"proxy-authorization": f"Basic {base64.b64encode(f'{self.user}:{self.password}'.encode()).decode()}"}


def websocket_options(proxy: Proxy | None) -> dict[str, Any]:
    """Return the options of a websocket, which must not read the environment itself."""
    if proxy is None:
        return {"http_no_proxy": ["*"]}
    return {
        "http_no_proxy": [_NOWHERE],
        "http_proxy_host": proxy.host,
        "http_proxy_port": proxy.port,
        "proxy_type": proxy.scheme if proxy.scheme in _SOCKS else "http",
        **({"http_proxy_auth": (proxy.user, proxy.password)} if proxy.user or proxy.password else {}),
    }


def of_environment(url: str) -> Proxy | None:
    """Return the proxy of `$HTTPS_PROXY`, `$HTTP_PROXY` or `$ALL_PROXY` for an address; None without a proxy.

    Raises:
        ConfigurationError: the address of the proxy is not valid.
    """
    for name in (f"{urlsplit(url).scheme}_proxy", "all_proxy"):
        for variable in (name, name.upper()):
            if text := environ.get(variable):
                if is_direct(url, environ.get("no_proxy") or environ.get("NO_PROXY") or ""):
                    return None
                return Proxy.parse(text.strip(), f"${variable}")
    return None


def is_direct(url: str, no_proxy: str) -> bool:
    """Return whether an address needs no proxy: a loopback address, or one that `$NO_PROXY` names.

    Args:
        no_proxy: names, addresses and networks, separated by commas or blanks. Names and addresses may have a port.
    """
    parts = urlsplit(url)
    host, port = (parts.hostname or "").rstrip("."), parts.port or _PORTS.get(parts.scheme, 0)
    address = _address(host)
    if _is_loopback(host, address):
        return True
    return any(_matches(entry, host, port, address) for entry in re.split(r"[\s,]+", no_proxy.lower()) if entry)


_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _address(host: str) -> _Address | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _is_loopback(host: str, address: _Address | None) -> bool:
    return address.is_loopback if address is not None else host == "localhost" or host.endswith(".localhost")


def _matches(entry: str, host: str, port: int, address: _Address | None) -> bool:
    if entry == "*":
        return True
    if (network := _network(entry)) is not None:
        return address is not None and address in network
    match = _ENTRY.fullmatch(entry)
    name, entry_port = (match[1], match[2]) if match else (entry, None)
    if entry_port is not None and int(entry_port) != port:
        return False
    if address is not None:
        return _address(name.strip("[]")) == address
    name = name.removeprefix("*").strip(".")
    return bool(name) and (host == name or host.endswith(f".{name}"))


def _network(entry: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        return None
