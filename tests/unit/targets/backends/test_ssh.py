"""The description of a machine determines the arguments of `ssh`; `tests/live` connects to machines."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.fakes.ledger import MemoryLedger
from toolbox.ground.extensions.protocols import Backend
from toolbox.ground.model.errors import StepError
from toolbox.ground.model.workloads import TargetContext, Workload
from toolbox.targets.backends.ssh import Target
from toolbox.targets.ssh_machine import SshMachine


@pytest.mark.parametrize(
    ("fields", "address"),
    [
        ({}, "name"),
        ({"host": "far"}, "far"),
        ({"host": "far", "user": "me", "port": 2222}, "me@far:2222"),
        ({"user": "me"}, "me@name"),
        ({"host": "[::1]", "port": 22}, "[::1]:22"),
        ({"host": "::1"}, "[::1]"),
    ],
)
def test_ansible_gets_the_same_address_as_ssh(fields: dict[str, Any], address: str) -> None:
    assert Target(**fields).address("name") == address


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("host", "-oProxyCommand=touch /tmp/x"),
        ("host", "two words"),
        ("host", ""),
        ("host", "{{ lookup('pipe', 'id') }}"),
        ("host", ".."),
        ("host", "me@far"),
        ("user", "{{ lookup('pipe', 'id') }}"),
        ("user", "-l"),
        ("user", ""),
        ("port", 0),
        ("port", 65536),
        ("python", ""),
        ("directory", ""),
        ("directory", "relative/to/what"),
        ("directory", "~somebody/else"),
        ("no_such_field", 1),
    ],
)
def test_an_invalid_machine_is_refused(field: str, value: object) -> None:
    with pytest.raises(ValidationError, match=field):
        Target.model_validate({field: value})


@pytest.fixture
def called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file in which a fake `ssh`, which reaches no machine, writes its arguments."""
    program = tmp_path / "bin/ssh"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\nimport sys\nopen({str(tmp_path / 'called')!r}, 'w').write('\\n'.join(sys.argv[1:]))\n"
        "sys.exit('Permission denied (publickey).')\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return tmp_path / "called"


def backend(tmp_path: Path, **fields: Any) -> Backend:
    """Open the backend of a target."""
    context = TargetContext("name", "run", tmp_path / "mark", {}, list, lambda _: None, MemoryLedger())
    return Target.model_validate(fields).open(context)


def call(tmp_path: Path, called: Path, **fields: Any) -> list[str]:
    """Return the arguments of `ssh`."""
    opened = backend(tmp_path, **fields)
    with pytest.raises(StepError, match=r"^name: the host cannot be reached: Permission denied"):
        opened.submit(Workload(("true",)), "cell", tmp_path)
    opened.close()
    return called.read_text().splitlines()


def test_ssh_never_asks_for_a_password_and_detects_a_dead_connection(tmp_path: Path, called: Path) -> None:
    args = call(tmp_path, called)
    assert {"-oRequestTTY=no", "-oBatchMode=yes", "-oServerAliveInterval=5", "-oServerAliveCountMax=3"} <= set(args)


def test_settings_that_the_target_omits_are_left_to_the_ssh_configuration(tmp_path: Path, called: Path) -> None:
    args = call(tmp_path, called)
    assert not {"-l", "-p"} & set(args)
    assert args[args.index("--") + 1] == "name"


def test_a_target_names_the_user_and_the_port(tmp_path: Path, called: Path) -> None:
    args = call(tmp_path, called, host="far", user="me", port=2222, python="/opt/a python")
    assert args[args.index("-l") + 1] == "me"
    assert args[args.index("-p") + 1] == "2222"
    assert args[args.index("--") + 1] == "far"
    remote = args[args.index("--") + 2]
    assert remote.endswith("'")
    assert "exec \\0047/opt/a python\\0047 -E -s -S -c " in remote


def test_ssh_takes_an_ipv6_address_without_brackets(tmp_path: Path, called: Path) -> None:
    args = call(tmp_path, called, host="[::1]")
    assert args[args.index("--") + 1] == "::1"


def test_closing_a_machine_that_was_never_reached_leaves_no_files(tmp_path: Path) -> None:
    opened = backend(tmp_path)
    assert isinstance(opened, SshMachine)
    folder = opened._control.parent
    assert folder.is_dir()
    opened.close()
    assert not folder.exists()
