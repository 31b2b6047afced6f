"""A test server of the used parts of GitHub's REST API, in this process on loopback."""

from __future__ import annotations

from tests.servers.github.faults import (
    Fault,
    dropped_connection,
    primary_rate_limit,
    secondary_rate_limit,
    server_error,
    slow,
)
from tests.servers.github.github_server import Server, serving

__all__ = [
    "Fault",
    "Server",
    "dropped_connection",
    "primary_rate_limit",
    "secondary_rate_limit",
    "server_error",
    "serving",
    "slow",
]
