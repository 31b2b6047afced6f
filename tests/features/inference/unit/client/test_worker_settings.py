"""The settings of the worker are checked before anything starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolbox.features.inference.client import worker_settings
from toolbox.features.inference.client.answer_format import Case, SettingsError
from toolbox.features.inference.client.worker_settings import Ports, ServerSettings, WorkerSettings

COMMAND = ["serve", "--port={port}", "--grpc_port={grpc_port}"]
CASE = {"name": "a", "protocol": "chat", "request": {"messages": []}}


def read(directory: Path, settings: object, cases: object) -> WorkerSettings:
    (directory / "settings.json").write_text(json.dumps(settings))
    (directory / "cases.json").write_text(json.dumps(cases))
    return worker_settings.read(directory / "settings.json")


def test_fields_have_defaults(tmp_path: Path) -> None:
    settings = read(tmp_path, {"server": {"command": COMMAND}}, {"protocol": "openai", "cases": [CASE]})
    assert settings == WorkerSettings(
        server=ServerSettings(command=COMMAND),
        cases=[Case(name="a", protocol="chat", request={"messages": []}, stream=False)],
    )


def test_null_stands_for_the_default(tmp_path: Path) -> None:
    server = {"command": COMMAND, "url": None, "ready": None, "env": None, "model": None}
    settings = read(tmp_path, {"server": server, "concurrency": None}, {"cases": [CASE]})
    assert settings.server == ServerSettings(command=COMMAND)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ([], "settings.json must be an object"),
        ({}, "server needs `command`, `url` or `grpc`"),
        ({"server": []}, "server must be of the type dict"),
        ({"server": {"command": []}}, "server.command must be a list of texts"),
        ({"server": {"command": ["a", 1]}}, "server.command must be a list of texts"),
        ({"server": {"command": ["a\0"]}}, "server.command must be a list of texts"),
        ({"server": {"url": 1}}, "server.url must be of the type str"),
        ({"server": {"url": "x", "ready": {"timeout": 0}}}, "server.ready.timeout must be a positive float"),
        ({"server": {"url": "x", "ready": {"timeout": True}}}, "server.ready.timeout must be a positive float"),
        ({"server": {"url": "x", "ready": {"path": "health"}}}, "ready.path must begin with /"),
        ({"server": {"url": "x", "ready": {"wait": 1}}}, "server.ready has unknown fields: 'wait'"),
        ({"server": {"url": "x", "env": {"A": 1}}}, "server.env must map names of variables to texts"),
        ({"server": {"url": "x", "env": {"A=B": "1"}}}, "server.env must map names of variables to texts"),
        ({"server": {"grpc": "http://x:1"}}, "`grpc` must be HOST:PORT or grpcs://HOST:PORT"),
        ({"server": {"grpc": "x:1", "api_key_variable": "KEY"}}, "`grpc` must be grpcs://x:1, because the API key"),
        ({"server": {"url": "x", "ca_file": "/none"}}, "server.ca_file /none has no certificates: No such file"),
        ({"server": {"url": "x", "ca_file": "/dev/null"}}, "server.ca_file /dev/null has no certificates"),
        ({"server": {"url": "x"}, "concurrency": 1.5}, "concurrency must be a positive int"),
        ({"server": {"url": "x"}, "speed": 1}, "unknown fields: 'speed'"),
        ({"server": {"grpc": "x:1"}}, "a case uses OpenAI's protocol, but the server has no `url`"),
        ({"server": {"url": "x"}, "cases": "none.json"}, "none.json cannot be read: No such file"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, settings: object, message: str) -> None:
    with pytest.raises(SettingsError, match=message.replace("(", "\\(")):
        read(tmp_path, settings, {"cases": [CASE]})


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("x", r"cases.json: cases\[0\] must be an object"),
        (CASE | {"name": None}, r"cases\[0\] has no name"),
        (CASE | {"protocol": "http"}, r"cases\[0\].protocol must be one of fmaas, "),
        (CASE | {"request": []}, r"cases\[0\].request must be of the type dict"),
        (CASE | {"stream": 1}, r"cases\[0\].stream must be of the type bool"),
        (CASE | {"expected": 1}, r"cases\[0\] has unknown fields: 'expected'"),
        (CASE | {"protocol": "tokenize"}, "a case uses fmaas, but the server has no `grpc`"),
    ],
)
def test_a_wrong_case_is_named(tmp_path: Path, case: object, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        read(tmp_path, {"server": {"url": "http://x"}}, {"cases": [case]})


@pytest.mark.parametrize("content", ["", "{", "[" * 100_000, "\xff"])
def test_a_file_that_is_not_json_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "settings.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(SettingsError, match=r"settings\.json is not JSON"):
        worker_settings.read(tmp_path / "settings.json")


def test_ports_are_replaced_and_other_braces_are_not() -> None:
    ports = Ports(http=1, grpc=2)
    assert ports.filled('{"a": {port}, "b": "{grpc_port}"}') == '{"a": 1, "b": "2"}'
    assert Ports(http=1).filled("{port} {grpc_port}") == "1 {grpc_port}"


@pytest.mark.parametrize("key", ["a b", "a\nb", "é", "\0"])
def test_a_key_that_no_header_can_contain_is_refused_without_showing_it(
    monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setattr("os.environ", {"KEY": key})
    settings: Any = ServerSettings(api_key_variable="KEY")
    with pytest.raises(SettingsError) as caught:
        _ = settings.api_key
    assert key not in str(caught.value)
