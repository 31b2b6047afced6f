"""A request whose outcome is unknown may be carried out after an outage of the API. Its TPU is then deleted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.features.tpu.servers import tpu
from tests.features.tpu.servers.tpu import Fault, Server
from tests.features.tpu.unit.conftest import OTHER_ZONE, PLACE, ZONE, Request
from toolbox.features.tpu import deletion, ssh_keys
from toolbox.features.tpu.api import TpuApi
from toolbox.features.tpu.fleet import Fleet
from toolbox.features.tpu.provisioning import Provisioning
from toolbox.ground.model.errors import StepError
from toolbox.ground.model.events import RunStarted
from toolbox.ground.model.resources import Owner
from toolbox.ground.system.redaction import Redactor
from toolbox.orchestration import leftovers, remote_resources
from toolbox.orchestration.leftovers import Outcome, Reaped, Search
from toolbox.records.runs import ledger as ledgers
from toolbox.records.runs.journal import Journal
from toolbox.records.runs.ledger import Ledger

OUTAGE = 600.0
"""Seconds until the server carries out the first request: longer than the requests are repeated."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """Yield a server on which time passes, because a deletion waits."""
    with tpu.serving(tmp_path / "server", has_workers=False) as running:
        yield running


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """Return the ledger of a run that has ended."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(remote_resources, "_WAIT_SECONDS", 0.0)
    monkeypatch.setattr(deletion, "_FIRST_PAUSE", 0.01)
    directory = tmp_path / "run-1"
    directory.mkdir()
    with Journal(directory) as journal:
        journal.append(RunStarted("run-1", "project", str(directory), ()))
    return ledgers.of_run(directory, "project")


@pytest.fixture
def owner(ledger: Ledger) -> Owner:
    """Return the owner of the ledger."""
    return ledger.owner


@pytest.fixture
def fleet(api: TpuApi, ledger: Ledger) -> Iterator[Fleet]:
    made = Fleet("tpus", api, ledger, lambda _: None)
    yield made
    made.close()


def reap() -> list[Reaped]:
    found = Search()
    found.add_ledgers()
    return leftovers.reap(found.leftovers, None, Redactor())


def fail(server: Server, method: str = "CreateNode") -> None:
    """Let the API fail until a test ends the outage, and carry out the first request long afterwards."""
    server.add_fault(Fault(method, "UNAVAILABLE", when="late", delay=OUTAGE))
    server.add_fault(Fault(method, "UNAVAILABLE", times=None))


@pytest.mark.parametrize(
    ("fields", "method"), [({}, "CreateNode"), ({"slices": 2}, "CreateQueuedResource")], ids=["node", "slices"]
)
def test_a_tpu_that_is_created_after_an_outage_is_reaped(
    fleet: Fleet, request_for: Request, server: Server, ledger: Ledger, fields: dict[str, Any], method: str
) -> None:
    fail(server, method)
    with pytest.raises(StepError, match="UNAVAILABLE"):
        fleet.request(request_for(**fields), 60)
    fleet.delete_named(request_for(**fields))
    key = ssh_keys.of_owner(ledger.owner, ledger.file.parent)
    assert server.leftovers() == []
    (kept,) = reap()
    (entry,) = ledger.open_resources()
    assert not key.private.exists()
    assert (kept.outcome, kept.reason) == (Outcome.KEPT, f"it {entry.state}; {remote_resources.reap_later(entry)}")
    server.advance(OUTAGE)
    assert server.leftovers() != []
    assert [each.outcome for each in reap()] == [Outcome.DELETED]
    assert (server.leftovers(), ledger.open_resources(), ledgers.runs()) == ([], (), [])


@pytest.mark.parametrize("code", ["RESOURCE_EXHAUSTED", "INVALID_ARGUMENT"])
def test_a_refusal_says_nothing_about_the_request_of_an_earlier_session(
    api: TpuApi, request_for: Request, server: Server, ledger: Ledger, code: str
) -> None:
    ledger.plan(request_for().resource)
    server.add_fault(Fault("CreateNode", code))
    with pytest.raises(StepError, match=code):
        Provisioning(api, request_for(), ledger).begin()
    assert [entry.is_absent for entry in ledger.open_resources()] == [True]


def test_a_refusal_says_nothing_about_earlier_tries_of_the_request(
    api: TpuApi, request_for: Request, server: Server, ledger: Ledger
) -> None:
    server.add_fault(Fault("CreateNode", "UNAVAILABLE", when="late", delay=OUTAGE, zone=ZONE))
    server.add_fault(Fault("CreateNode", "RESOURCE_EXHAUSTED", zone=ZONE, first=2))
    provisioning = Provisioning(api, request_for(zone=[ZONE, OTHER_ZONE]), ledger)
    provisioning.begin()
    provisioning.step(api.view(PLACE))
    first, second = ledger.open_resources()
    assert (first.resource.name, first.is_absent) == (PLACE.node("tpu"), True)
    assert (provisioning.request.location.zone, second.is_absent) == (OTHER_ZONE, False)
