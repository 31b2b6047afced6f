"""Reads the settings of the worker and its cases. Everything wrong is a SettingsError, before anything starts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from . import load_settings
from .answer_format import FMAAS_KINDS, GENERATING, OPENAI_KINDS, Case, SettingsError
from .load_settings import LoadSettings
from .server_addresses import GrpcAddress, tls_context
from .settings_block import Block, read_json

_PORT: Final = "{port}"
_GRPC_PORT: Final = "{grpc_port}"


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """How to start and reach the server.

    Args:
        command: starts the server. `{port}` and `{grpc_port}` in it, in `env` and in the addresses become free ports.
        url: address of OpenAI's protocol. If the command has `{port}`, the default is that port.
        grpc: HOST:PORT of the fmaas service, or grpcs://HOST:PORT with TLS. If the command has `{grpc_port}`, the
            default is that port.
        ca_file: the certificates of the authorities (PEM) that are trusted with https and grpcs; by default, those of
            the system.
        ready_timeout: seconds until the server must be ready.
        ready_path: the path whose status 200 shows that the server is ready; by default, that of the list of models.
        env: variables for the command, in addition to those of the worker.
        model: the name of the model for OpenAI requests without a field `model`.
        api_key_variable: the environment variable of the worker that contains the API key.
        grace: seconds between SIGTERM and SIGKILL for the server, fewer than the workload itself has (10).
    """

    command: Sequence[str] | None = None
    url: str | None = None
    grpc: str | None = None
    ca_file: str | None = None
    ready_timeout: float = 600.0
    ready_path: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    model: str | None = None
    api_key_variable: str | None = None
    grace: float = 8.0

    @property
    def texts(self) -> Sequence[str]:
        """The texts in which ports are replaced."""
        return [*(self.command or ()), *self.env.values()]

    @property
    def needs_port(self) -> bool:
        """Whether the command wants a port for HTTP."""
        return any(_PORT in text for text in self.texts)

    @property
    def needs_grpc_port(self) -> bool:
        """Whether the command wants a port for gRPC."""
        return any(_GRPC_PORT in text for text in self.texts)

    @property
    def api_key(self) -> str | None:
        """The API key. Raise SettingsError if its variable is not set."""
        if self.api_key_variable is None:
            return None
        key = os.environ.get(self.api_key_variable)
        if not key:
            raise SettingsError(f"the environment variable {self.api_key_variable} for the API key is not set")
        if not (key.isascii() and key.isprintable()) or " " in key:
            raise SettingsError(f"the API key in {self.api_key_variable} has characters that a header cannot contain")
        return key


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """What the worker does.

    Args:
        concurrency: number of requests at a time.
        timeout: seconds for each request.
        load: a load, for which the cases are sent again and again; None to send each case once.
    """

    server: ServerSettings
    cases: Sequence[Case]
    concurrency: int = 1
    timeout: float = 120.0
    load: LoadSettings | None = None


def read(path: Path) -> WorkerSettings:
    """Read the settings, and the cases from the file that the settings name."""
    content = Block(read_json(path), path.name)
    load = content.take("load", dict, None)
    server = _server(Block(content.take("server", dict, {}), f"{path.name}: server"))
    settings = WorkerSettings(
        server=server,
        cases=_cases(path.parent / content.take("cases", str, "cases.json")),
        concurrency=content.positive("concurrency", int, 1),
        timeout=content.positive("timeout", float, WorkerSettings.timeout),
        load=None if load is None else load_settings.read(Block(load, f"{path.name}: load")),
    )
    content.refuse_rest()
    _check_addresses(settings)
    if settings.load:
        _check_load(settings.cases)
    return settings


def _server(block: Block) -> ServerSettings:
    ready = Block(block.take("ready", dict, {}), f"{block.place}.ready")
    settings = ServerSettings(
        command=block.texts("command"),
        url=block.take("url", str, None),
        grpc=block.take("grpc", str, None),
        ca_file=block.take("ca_file", str, None),
        ready_timeout=ready.positive("timeout", float, ServerSettings.ready_timeout),
        ready_path=ready.take("path", str, None),
        env=block.mapping_of_texts("env"),
        model=block.take("model", str, None),
        api_key_variable=block.take("api_key_variable", str, None),
        grace=block.positive("grace", float, ServerSettings.grace),
    )
    ready.refuse_rest()
    block.refuse_rest()
    if not (settings.command or settings.url or settings.grpc):
        raise SettingsError(f"{block.place} needs `command`, `url` or `grpc`")
    if settings.ready_path is not None and not settings.ready_path.startswith("/"):
        raise SettingsError(f"{block.place}.ready.path must begin with /")
    _check_security(settings, block.place)
    return settings


def _check_security(server: ServerSettings, place: str) -> None:
    address = GrpcAddress.parsed(server.grpc) if server.grpc else None
    if address and server.api_key_variable:
        address.check_key()
    try:
        if server.ca_file:
            tls_context(server.ca_file)
    except OSError as error:
        raise SettingsError(f"{place}.ca_file {server.ca_file} has no certificates: {error.strerror}") from error


def _check_addresses(settings: WorkerSettings) -> None:
    server = settings.server
    protocols = {case.protocol for case in settings.cases}
    if protocols & set(OPENAI_KINDS) and not (server.url or server.needs_port):
        raise SettingsError("a case uses OpenAI's protocol, but the server has no `url`, and its command no `{port}`")
    if protocols & set(FMAAS_KINDS) and not (server.grpc or server.needs_grpc_port):
        raise SettingsError("a case uses fmaas, but the server has no `grpc`, and its command no `{grpc_port}`")


def _check_load(cases: Sequence[Case]) -> None:
    if not cases:
        raise SettingsError("a load needs a case")
    for case in cases:
        if case.protocol not in GENERATING:
            raise SettingsError(f"the case {case.name} has the protocol {case.protocol}, but a load asks for texts")


def _cases(path: Path) -> Sequence[Case]:
    block = Block(read_json(path), path.name)
    block.take("protocol", str, None)
    entries = block.take("cases", list, [])
    block.refuse_rest()
    cases = []
    for number, entry in enumerate(entries):
        place = f"{path.name}: cases[{number}]"
        item = Block(entry, place)
        name = item.take("name", str, "")
        protocol = item.take("protocol", str, "")
        case = Case(
            name=name,
            protocol=protocol,
            request=item.take("request", dict, {}),
            stream=item.take("stream", bool, False),
            retries=item.not_negative("retries", int, 0),
        )
        item.refuse_rest()
        if not name:
            raise SettingsError(f"{place} has no name")
        if protocol not in (*FMAAS_KINDS, *OPENAI_KINDS):
            raise SettingsError(f"{place}.protocol must be one of {', '.join((*FMAAS_KINDS, *OPENAI_KINDS))}")
        cases.append(case)
    return cases


@dataclass(frozen=True, kw_only=True)
class Ports:
    """The ports of one start of the server."""

    http: int | None = None
    grpc: int | None = None

    @property
    def all(self) -> Sequence[int]:
        """The ports that the command got."""
        return [port for port in (self.http, self.grpc) if port is not None]

    def filled(self, text: str) -> str:
        """Return a text with the ports in it."""
        for name, port in ((_PORT, self.http), (_GRPC_PORT, self.grpc)):
            text = text if port is None else text.replace(name, str(port))
        return text
