"""Tests of the descriptions of hubs: their fields, and the workloads that they accept."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.conformance.sites import wait_for, workload
from tests.fakes.ledger import MemoryLedger
from toolbox.features.notebooks.backends import jupyterhub
from toolbox.features.notebooks.backends.jupyterhub import ServerFields, Target, WorkloadFields
from toolbox.features.notebooks.jupyterhub import hub_tokens, server_starts
from toolbox.ground.model.errors import ConfigurationError
from toolbox.ground.model.secrets import Secret
from toolbox.ground.model.workloads import Handle, TargetContext, Timeouts, Workload
from toolbox.targets.local_machine import LocalMachine

URL = "https://hub.example.org/a"


def target(**fields: object) -> Target:
    return Target.model_validate({"url": URL, **fields})


@pytest.mark.parametrize(
    "fields",
    [{"url": "hub"}, {"user": "a/b"}, {"profile": ""}, {"ttl": 0}, {"image": "x"}, {"url": "https://ann:pw@hub"}],
)
def test_a_wrong_description_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        target(**fields)


def test_a_description_does_not_show_the_token() -> None:
    assert "battery" not in repr(target(token="correct-horse-battery"))


def test_deletions_use_the_token_of_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(hub_tokens.VARIABLE, raising=False)
    url = "https://other.example.org"
    with pytest.raises(ConfigurationError, match="there is no token"):
        hub_tokens.access(url, "ann", None)
    target(url=url, token="correct-horse-battery")
    assert hub_tokens.access(url, "ann", None).token == Secret("correct-horse-battery")


def test_two_targets_of_a_hub_have_their_own_tokens() -> None:
    url = "https://fourth.example.org"
    first, second = target(url=url, token="correct-horse"), target(url=url, token="battery-staple")
    assert first.access.token == Secret("correct-horse")
    assert second.access.token == Secret("battery-staple")


def test_the_token_may_be_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(hub_tokens.VARIABLE, "from-the-environment")
    assert target(url="https://third.example.org").access.token == Secret("from-the-environment")


def test_a_workload_that_may_outlive_its_server_is_refused() -> None:
    with pytest.raises(ValueError, match="raise `ttl`"):
        target(ttl=600).accept(Workload(("true",), timeouts=Timeouts(wait=300, run=300)))
    with pytest.raises(ValueError, match="no limit"):
        target().accept(Workload(("true",), timeouts=Timeouts(run=None)))
    target(ttl=601).accept(Workload(("true",), timeouts=Timeouts(wait=300, run=300)))


def test_a_working_directory_of_the_target_is_refused() -> None:
    with pytest.raises(ValueError, match="cwd"):
        target().accept(Workload(("true",), cwd="/srv"))


def test_a_workload_has_options_or_a_reference_to_them() -> None:
    fields = WorkloadFields.model_validate({"server": {"options": {"image": "a"}}})
    assert fields.server == ServerFields(options={"image": "a"})
    assert WorkloadFields.model_validate({"server": "@cell.server"}).server == "@cell.server"
    with pytest.raises(ValidationError, match="mapping"):
        WorkloadFields.model_validate({"server": "small"})


def test_the_run_learns_of_a_workload_that_ends_before_its_start_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit, handle = LocalMachine.submit, Handle("cell", tmp_path)
    known: list[bool] = []  # whether the backend knew the end, for each notification

    def notify(_: str) -> None:
        known.append(backend.poll([handle])[handle].state.is_over)

    async def start(*_: Any, **__: Any) -> None:
        await asyncio.sleep(0.2)  # the hub sends no message

    def submit_and_wait(machine: LocalMachine, *arguments: Any) -> None:
        submit(machine, *arguments)
        wait_for(lambda: machine.poll([handle])[handle].state.is_over, "the end of the workload")
        time.sleep(0.2)  # the machine notifies the backend

    monkeypatch.setattr(server_starts, "start", start)
    monkeypatch.setattr(jupyterhub, "_QUICK_SECONDS", 0.0)
    monkeypatch.setattr(LocalMachine, "submit", submit_and_wait)
    context = TargetContext("hub", "run", tmp_path / "mark", {}, list, notify, MemoryLedger())
    backend = target(user="ann", token="correct-horse-battery").open(context)
    assert backend.submit(workload("true"), handle.name, handle.directory) == handle
    wait_for(lambda: True in known, "the notification of the end")
    backend.close()
    assert known == [True]
