"""VMs that have addresses, but do not exist: for tests of the API alone, which need no root."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from google.cloud.tpu_v2 import types

from tests.servers.tpu.catalog import CATALOG

_PORT = 8470


class NoMachines:
    """Addresses of the documentation networks (RFC 5737), where no machine answers."""

    port = 22

    def start(self, node: types.Node, seconds: float) -> Sequence[types.NetworkEndpoint]:  # noqa: ARG002
        """Return addresses."""
        has_external = node.network_config.enable_external_ips
        return [
            types.NetworkEndpoint(
                ip_address=f"192.0.2.{worker + 1}",
                port=_PORT,
                access_config=types.AccessConfig(external_ip=f"203.0.113.{worker + 1}") if has_external else None,
            )
            for worker in range(CATALOG[node.accelerator_type].workers)
        ]

    def restart(self, node: types.Node, workers: Iterable[int] | None = None) -> None:
        """Do nothing."""

    def stop(self, name: str, workers: Iterable[int] | None = None) -> None:
        """Do nothing."""

    def forget(self, name: str) -> None:
        """Do nothing."""

    def update(self, node: types.Node) -> None:
        """Do nothing."""

    def guest_attributes(self, name: str) -> Sequence[Mapping[tuple[str, str], str]]:  # noqa: ARG002
        """Return nothing."""
        return []
