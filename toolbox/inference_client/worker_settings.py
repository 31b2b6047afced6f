"""Reads the settings of the worker and its cases. Everything wrong is a SettingsError, before anything starts."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from .answer_format import FMAAS_KINDS, OPENAI_KINDS, Case, SettingsError

_PORT: Final = "{port}"
_GRPC_PORT: Final = "{grpc_port}"
_MOST_FILE_BYTES: Final = 64 << 20

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """How to start and reach the server.

    Args:
        command: starts the server. `{port}` and `{grpc_port}` in it, in `env` and in the addresses become free ports.
        url: address of OpenAI's protocol. If the command has `{port}`, the default is that port.
        grpc: HOST:PORT of the fmaas service. If the command has `{grpc_port}`, the default is that port.
        ready_timeout: seconds until the server must be ready.
        ready_path: the path whose status 200 tells that the server is ready. By default, the list of models tells it.
        env: variables for the command, besides those of the worker.
        model: the name of the model for requests that name none.
        api_key_variable: the environment variable of the worker that contains the API key.
        grace: seconds between SIGTERM and SIGKILL for the server, fewer than the workload itself has (10).
    """

    command: Sequence[str] | None = None
    url: str | None = None
    grpc: str | None = None
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
    """

    server: ServerSettings
    cases: Sequence[Case]
    concurrency: int = 1
    timeout: float = 120.0


def read(path: Path) -> WorkerSettings:
    """Read the settings, and the cases from the file that the settings name."""
    content = _Block(_json(path), path.name)
    server = _server(_Block(content.take("server", dict, {}), f"{path.name}: server"))
    settings = WorkerSettings(
        server=server,
        cases=_cases(path.parent / content.take("cases", str, "cases.json")),
        concurrency=content.positive("concurrency", int, 1),
        timeout=content.positive("timeout", float, WorkerSettings.timeout),
    )
    content.refuse_rest()
    _check_addresses(settings)
    return settings


def _server(block: _Block) -> ServerSettings:
    ready = _Block(block.take("ready", dict, {}), f"{block.place}.ready")
    settings = ServerSettings(
        command=block.texts("command"),
        url=block.take("url", str, None),
        grpc=block.take("grpc", str, None),
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
    return settings


def _check_addresses(settings: WorkerSettings) -> None:
    server = settings.server
    protocols = {case.protocol for case in settings.cases}
    if protocols & set(OPENAI_KINDS) and not (server.url or server.needs_port):
        raise SettingsError("a case uses OpenAI's protocol, but the server has no `url`, and its command no `{port}`")
    if protocols & set(FMAAS_KINDS) and not (server.grpc or server.needs_grpc_port):
        raise SettingsError("a case uses fmaas, but the server has no `grpc`, and its command no `{grpc_port}`")


def _cases(path: Path) -> Sequence[Case]:
    block = _Block(_json(path), path.name)
    block.take("protocol", str, None)
    entries = block.take("cases", list, [])
    block.refuse_rest()
    cases = []
    for number, entry in enumerate(entries):
        place = f"{path.name}: cases[{number}]"
        item = _Block(entry, place)
        name = item.take("name", str, "")
        protocol = item.take("protocol", str, "")
        case = Case(
            name=name,
            protocol=protocol,
            request=item.take("request", dict, {}),
            stream=item.take("stream", bool, False),
        )
        item.refuse_rest()
        if not name:
            raise SettingsError(f"{place} has no name")
        if protocol not in (*FMAAS_KINDS, *OPENAI_KINDS):
            raise SettingsError(f"{place}.protocol must be one of {', '.join((*FMAAS_KINDS, *OPENAI_KINDS))}")
        cases.append(case)
    return cases


def _json(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_FILE_BYTES + 1)
        if len(content) > _MOST_FILE_BYTES:
            raise SettingsError(f"{path} is larger than {_MOST_FILE_BYTES} bytes")
        return json.loads(content)
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{path} is not JSON: {error}") from error


class _Block:
    """An object of the settings, from which fields are taken with their types.

    Args:
        place: the name of the object in messages.
    """

    def __init__(self, content: object, place: str) -> None:
        if not isinstance(content, dict):
            raise SettingsError(f"{place} must be an object")
        self.place = place
        self._rest = dict(content)

    def take(self, name: str, kind: type[T], default: Any) -> Any:
        """Return a field. The value null stands for the default."""
        value = self._rest.pop(name, None)
        if value is None:
            return default
        if not isinstance(value, kind):
            raise SettingsError(f"{self.place}.{name} must be of the type {kind.__name__}")
        return value

    def positive(self, name: str, kind: type[int | float], default: float) -> Any:
        """Return a field that must be a positive number."""
        value = self._rest.pop(name, None)
        if value is None:
            return default
        kinds = (int,) if kind is int else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds) or not 0 < value < float("inf"):
            raise SettingsError(f"{self.place}.{name} must be a positive {kind.__name__}")
        return kind(value)

    def texts(self, name: str) -> Sequence[str] | None:
        """Return a field that must be a list of texts, or null."""
        value: list[object] | None = self.take(name, list, None)
        if value is None:
            return None
        if not value or not all(isinstance(item, str) and "\0" not in item for item in value):
            raise SettingsError(f"{self.place}.{name} must be a list of texts")
        return [str(item) for item in value]

    def mapping_of_texts(self, name: str) -> Mapping[str, str]:
        """Return a field that must be an object of texts."""
        value: dict[str, object] = self.take(name, dict, {})
        for key, item in value.items():
            if not isinstance(item, str) or "\0" in item or not key or "=" in key or "\0" in key:
                raise SettingsError(f"{self.place}.{name} must map names of variables to texts")
        return {key: str(item) for key, item in value.items()}

    def refuse_rest(self) -> None:
        """Raise SettingsError if a field has not been taken."""
        if self._rest:
            raise SettingsError(f"{self.place} has unknown fields: {', '.join(map(ascii, self._rest))}")


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
