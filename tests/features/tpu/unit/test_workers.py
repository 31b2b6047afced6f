"""Workers are selected by their numbers, and only the key of the run is used to reach them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from toolbox.features.tpu import workers
from toolbox.features.tpu.ssh_keys import SshKey
from toolbox.features.tpu.tpu_description import Ssh
from toolbox.features.tpu.tpu_states import Endpoint, Location, Node
from toolbox.ground.model.errors import StepError
from toolbox.ground.model.verdicts import Cause
from toolbox.targets.ssh_machine import in_any_shell

KEY = SshKey(Path("/keys/a b%/id"), "ssh-ed25519 AAAA", Path("/keys/known_hosts"))


def node(name: str, *endpoints: Endpoint) -> Node:
    full_name = Location("my-project", "us-central1-b").node(name)
    return Node(full_name, "READY", endpoints=endpoints, created=datetime(2026, 1, 2, tzinfo=UTC))


@pytest.mark.parametrize(
    ("text", "indices"),
    [
        ("all", (0, 1, 2, 3, 4)),
        ("ALL", (0, 1, 2, 3, 4)),
        ("0", (0,)),
        ("1-3", (1, 2, 3)),
        ("4,1", (1, 4)),
        ("0,0-1", (0, 1)),
    ],
)
def test_a_text_selects_workers(text: str, indices: tuple[int, ...]) -> None:
    assert workers.select(text, 5) == indices


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "selects no workers: write `all`"),
        ("a", "selects no workers"),
        ("-1", "selects no workers"),
        ("1-", "selects no workers"),
        ("1,", "selects no workers"),
        ("3-1", "the range 3-1 is backwards"),
        ("4", "there is no worker 4: the TPU has 4 workers, from 0 to 3"),
        ("0-9", "there is no worker 9"),
        ("99999999999", "selects no workers"),
    ],
)
def test_a_wrong_selection_is_explained(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match="worker") as caught:
        workers.select(text, 4)
    assert fault in str(caught.value)


def test_workers_are_numbered_through_all_slices() -> None:
    nodes = [node("x-0", Endpoint("10.0.0.1"), Endpoint("10.0.0.2")), node("x-1", Endpoint("10.0.0.3"))]
    found = workers.of_nodes(nodes, Ssh(internal=True))
    assert [(each.index, each.slice, each.address) for each in found] == [
        (0, 0, "10.0.0.1"),
        (1, 0, "10.0.0.2"),
        (2, 1, "10.0.0.3"),
    ]
    assert len({each.alias for each in found}) == 3


def test_a_node_that_is_created_again_within_a_second_has_another_alias() -> None:
    first = node("x", Endpoint("10.0.0.1", "34.0.0.1"))
    assert first.created is not None
    again = replace(first, created=first.created + timedelta(milliseconds=200))
    (one,), (other,) = (workers.of_nodes([each], Ssh()) for each in (first, again))
    assert one.alias != other.alias


def test_a_worker_without_an_external_address_is_an_error_with_a_hint() -> None:
    with pytest.raises(StepError, match="has no external address: use ssh") as caught:
        workers.of_nodes([node("x", Endpoint("10.0.0.1"))], Ssh())
    assert caught.value.cause is Cause.CONFIGURATION


def test_an_address_that_is_an_option_of_ssh_is_refused() -> None:
    with pytest.raises(StepError, match="is not a host"):
        workers.of_nodes([node("x", Endpoint("", "-oProxyCommand=x"))], Ssh())


def test_the_command_line_uses_only_the_key_of_the_run() -> None:
    worker = workers.of_nodes([node("x", Endpoint("10.0.0.1", "192.0.2.1"))], Ssh())[0]
    command = worker.login(Ssh(user="me", port=2222), KEY).command(command="true")
    assert '-oIdentityFile="/keys/a b%%/id"' in command
    assert "-oIdentitiesOnly=yes" in command
    assert "-oHostKeyAlias=x-1767312000.000000-0" in command
    assert list(command[-7:]) == ["-l", "me", "-p", "2222", "--", "192.0.2.1", in_any_shell("true")]


def test_each_command_has_its_own_connection_unless_its_options_name_another() -> None:
    login = workers.of_nodes([node("x", Endpoint("10.0.0.1", "192.0.2.1"))], Ssh())[0].login(Ssh(), KEY)
    masters = [option for option in login.command("ControlMaster=yes", command="true") if "ControlMaster" in option]
    assert masters == ["-oControlMaster=yes", "-oControlMaster=no"]  # OpenSSH uses the first value


def test_a_worker_cannot_connect_back_to_this_machine() -> None:
    worker = workers.of_nodes([node("x", Endpoint("10.0.0.1", "192.0.2.1"))], Ssh())[0]
    command = worker.login(Ssh(), KEY).command(command="true")
    assert {"-oForwardAgent=no", "-oForwardX11=no", "-oClearAllForwardings=yes"} <= set(command)
