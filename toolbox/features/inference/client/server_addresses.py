"""Reads the address of a gRPC server, and the certificates of the authorities that a client trusts.

The clients use it, and the configuration of the project `inference` checks its frameworks with it.
"""

from __future__ import annotations

import ipaddress
import re
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .answer_format import SettingsError

_TLS: Final = "grpcs://"
_ADDRESS: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/@\[\]]+):([0-9]{1,5}|\{grpc_port\})")


class AddressError(SettingsError, ValueError):
    """The address of a gRPC server is not possible."""


@dataclass(frozen=True)
class GrpcAddress:
    """The address of a gRPC server.

    Args:
        target: HOST:PORT.
        has_tls: whether the connection is encrypted, and the server proves its name with a certificate.
    """

    target: str
    has_tls: bool

    @classmethod
    def parsed(cls, text: str) -> GrpcAddress:
        """Return the address HOST:PORT or grpcs://HOST:PORT. Raise AddressError for any other text."""
        target = text.removeprefix(_TLS)
        if not _ADDRESS.fullmatch(target):
            raise AddressError("`grpc` must be HOST:PORT or grpcs://HOST:PORT")
        return cls(target, has_tls=target != text)

    def check_key(self) -> None:
        """Raise AddressError if other machines could read an API key on its way to the server."""
        if not self.has_tls and not self._is_on_this_machine:
            reason = "because the API key is sent to other machines only with TLS"
            raise AddressError(f"`grpc` must be {_TLS}{self.target}, {reason}")

    @property
    def _is_on_this_machine(self) -> bool:
        host = self.target.rpartition(":")[0].strip("[]")
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"


def tls_context(ca_file: str | None) -> ssl.SSLContext:
    """Return the settings of TLS connections. Raise OSError if the file has no certificates.

    Args:
        ca_file: the certificates of the trusted authorities (PEM); None for those of the system.
    """
    return ssl.create_default_context(cafile=ca_file)


def trusted_certificates(ca_file: str | None) -> bytes | None:
    """Return the certificates of the trusted authorities (PEM).

    Without a file, these are the certificates of the system, or None if the system has no file with all of them.
    """
    file = ca_file or ssl.get_default_verify_paths().cafile
    return Path(file).read_bytes() if file else None
