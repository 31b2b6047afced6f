"""Parses the names of hosts and users, for every module that reaches a machine by SSH or Ansible.

A host is a name, an alias of `~/.ssh/config`, an IPv4 address, or an IPv6 address in brackets. Any other text is
refused: it could be an option of `ssh`, a template or a pattern of Ansible, or a path.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from toolbox.ground.model.text import abbreviated

if TYPE_CHECKING:
    from pydantic_core import CoreSchema

_LONGEST_HOST: Final = 253  # RFC 1035
_LONGEST_USER: Final = 64
_HIGHEST_PORT: Final = 65535
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_IPV4 = re.compile(r"[0-9.]+")
_ADDRESS = re.compile(r"(?:(?P<user>[^@]*)@)?(?P<host>\[[^\[\]@]*\]|[^:\[\]@]*)(?::(?P<port>[0-9]{1,5}))?")


@dataclass(frozen=True, slots=True)
class Address:
    """A machine, and how to log in to it.

    Args:
        host: the name or address of the machine; an IPv6 address has no brackets here.
        user: the user to log in as; None for the user in the SSH configuration.
        port: the port of the SSH server; None for the port in the SSH configuration.
    """

    host: str
    user: str | None = None
    port: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `[USER@]HOST[:PORT]`.

        Raises:
            ValueError: the text is not of this form.
        """
        match = _ADDRESS.fullmatch(text)
        if match is None:
            raise ValueError(f"{abbreviated(text)} is not a host: write [USER@]HOST[:PORT]")
        port = int(match["port"]) if match["port"] else None
        if port is not None and not 1 <= port <= _HIGHEST_PORT:
            raise ValueError(f"{abbreviated(text)} is not a host: the port must be between 1 and {_HIGHEST_PORT}")
        return cls(host(match["host"]), None if match["user"] is None else user(match["user"]), port)

    def __str__(self) -> str:
        """Return the address as `[USER@]HOST[:PORT]`."""
        user_prefix = f"{self.user}@" if self.user else ""
        port_suffix = f":{self.port}" if self.port else ""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{user_prefix}{host}{port_suffix}"

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: object, _handler: object) -> CoreSchema:
        """Let pydantic parse an address from text."""
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(cls._validate)

    @classmethod
    def _validate(cls, value: Any) -> Self:
        if isinstance(value, cls):
            return value
        if not isinstance(value, str):
            raise ValueError(f"a host must be a string, not {abbreviated(value)}")  # noqa: TRY004  # pydantic reports it
        # YAML reads `[::1]` as a list. Its item, which pydantic passes here, is an IPv6 address without brackets.
        return cls(host(value)) if _is_ipv6(value) else cls.parse(value)


def host(text: str) -> str:
    """Check the name or address of a host, and return it. Brackets around an IPv6 address are removed.

    Raises:
        ValueError: the text is not a host.
    """
    inner = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if _is_ipv6(inner) or (inner == text and _is_name(text)):
        return inner
    forms = "a name, an alias of ~/.ssh/config, an IPv4 address, or [an IPv6 address]"
    raise ValueError(f"{abbreviated(text)} is not a host: write {forms}")


def user(text: str) -> str:
    """Check the name of a user, and return it.

    Raises:
        ValueError: the text is not the name of a user.
    """
    if len(text) <= _LONGEST_USER and _NAME.fullmatch(text):
        return text
    raise ValueError(f"{abbreviated(text)} is not a user: use only letters, digits, `.`, `_` and `-`")


def _is_name(text: str) -> bool:
    if _IPV4.fullmatch(text):
        return _is_ip(text, ipaddress.IPv4Address)
    return len(text) <= _LONGEST_HOST and ".." not in text and _NAME.fullmatch(text) is not None


def _is_ipv6(text: str) -> bool:
    # Refuse a zone such as `%eth0`: ssh expands `%`, and the zone would be in file names. An alias of ~/.ssh/config can
    # stand for an address with a zone.
    return "%" not in text and _is_ip(text, ipaddress.IPv6Address)


def _is_ip(text: str, kind: type[ipaddress.IPv4Address | ipaddress.IPv6Address]) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return True
