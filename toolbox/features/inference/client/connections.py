"""The connections of the worker to its server: a client for each protocol that is used."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from .answer_format import FMAAS_KINDS, OPENAI_KINDS, FaultError, Limits, SettingsError
from .sending import Client
from .server_readiness import Probe
from .worker_settings import ServerSettings, WorkerSettings

if TYPE_CHECKING:
    from .fmaas_client import FmaasClient
    from .openai_client import OpenAiClient

_GRPC_PROBE_SECONDS: Final = 5.0


class Connections:
    """The clients for the cases of some settings."""

    def __init__(self, settings: WorkerSettings, limits: Limits) -> None:
        self._settings = settings
        self._limits = limits
        self._openai: OpenAiClient | None = None
        self._fmaas: FmaasClient | None = None

    def import_libraries(self) -> None:
        """Import the libraries of the protocols, so that a missing one is a SettingsError before the server starts."""
        try:
            if self._uses(OPENAI_KINDS):
                from . import openai_client  # noqa: F401
            if self._uses(FMAAS_KINDS):
                from . import fmaas_client  # noqa: F401
        except ModuleNotFoundError as error:
            packages = {"httpx": "httpx", "grpc": "grpcio", "google": "protobuf"}
            module = error.name or "?"
            package = packages.get(module.split(".")[0], module)
            raise SettingsError(f"{sys.executable} has no package {package} (module {module})") from error

    def open(self, server: ServerSettings) -> None:
        """Create the clients. `server` contains the ports."""
        if server.url and self._uses(OPENAI_KINDS):
            from .openai_client import OpenAiClient

            self._openai = OpenAiClient(
                server.url,
                self._limits,
                key=self._settings.server.api_key,
                model=server.model,
                ca_file=server.ca_file,
                keeps_connections=self._settings.load is not None,
            )
        if server.grpc and self._uses(FMAAS_KINDS):
            from .fmaas_client import FmaasClient

            self._fmaas = FmaasClient(
                server.grpc, self._limits, key=self._settings.server.api_key, ca_file=server.ca_file
            )

    def probes(self) -> Mapping[str, Probe]:
        """Return the functions that check whether the server is ready, by the name of the request that they send."""
        probes: dict[str, Probe] = {}
        path = self._settings.server.ready_path
        openai, fmaas = self._openai, self._fmaas
        if openai:
            probes[f"GET {path or '/v1/models'}"] = lambda: openai.check_ready(path)
        if fmaas:
            probes["ModelInfo"] = lambda: fmaas.check_ready(_GRPC_PROBE_SECONDS)
        return probes

    @property
    def clients(self) -> Mapping[str, Client]:
        """The clients by the protocol of a case."""
        clients: dict[str, Client] = {}
        if self._openai:
            clients |= dict.fromkeys(OPENAI_KINDS, self._openai)
        if self._fmaas:
            clients |= dict.fromkeys(FMAAS_KINDS, self._fmaas)
        return clients

    async def choose_model(self) -> None:
        """Ask for the name of the model if a case needs it, so that the first requests of a load do not wait for it."""
        cases = [case for case in self._settings.cases if case.protocol in OPENAI_KINDS]
        if self._openai and any(case.request.get("model") is None for case in cases):
            with suppress(FaultError):  # the requests will have this fault
                await self._openai.choose_model()

    async def close(self) -> None:
        """Close the connections."""
        openai, fmaas = self._openai, self._fmaas
        self._openai = self._fmaas = None
        for client in (openai, fmaas):
            if client:
                await client.close()

    def _uses(self, kinds: Sequence[str]) -> bool:
        server = self._settings.server
        protocols = {case.protocol for case in self._settings.cases}
        if kinds is OPENAI_KINDS:
            has_address = bool(server.url or server.needs_port)
            return has_address and (server.ready_path is not None or not protocols or bool(protocols & set(kinds)))
        return bool(server.grpc or server.needs_grpc_port) and (not protocols or bool(protocols & set(kinds)))
