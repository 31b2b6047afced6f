"""Parses the address of the TPU API.

Only an address on this machine may be used without TLS: the requests to it carry no credentials, and the answers to
them are not authenticated. Such an address belongs to a test server.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from toolbox.ground.model.addresses import Address
from toolbox.ground.model.text import abbreviated

DEFAULT: Final = "tpu.googleapis.com"
_PLAIN: Final = "http://"


@dataclass(frozen=True, slots=True)
class ApiEndpoint:
    """The address of a TPU API.

    Args:
        address: the host, or `HOST:PORT`.
        has_tls: whether the connection is encrypted and sends credentials.
    """

    address: str
    has_tls: bool = True


def parse(text: str) -> ApiEndpoint:
    """Parse `HOST[:PORT]`, or `http://127.0.0.1:PORT` for a test server on this machine.

    Raises:
        ValueError: the text is not an address, or an address without TLS is not on this machine.
    """
    if text.startswith(_PLAIN):
        return ApiEndpoint(_loopback(text), has_tls=False)
    try:
        address = Address.parse(text)
    except ValueError:
        address = None
    if address is None or address.user is not None or "." not in address.host:
        raise ValueError(f"{abbreviated(text)} is not an API endpoint: write HOST[:PORT], such as {DEFAULT}")
    return ApiEndpoint(text)


def _loopback(text: str) -> str:
    parts = urlsplit(text)
    try:
        port, is_loopback = parts.port, ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        port, is_loopback = None, False
    if not is_loopback or not port or parts.netloc != text.removeprefix(_PLAIN):
        raise ValueError(
            f"{abbreviated(text)} is not an API endpoint: without TLS, only an address of this machine is allowed, as "
            "http://127.0.0.1:PORT"
        )
    return parts.netloc
