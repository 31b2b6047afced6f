"""A TPU is created once, in the first zone with capacity, and every request is in the ledger before it is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.fakes.ledger import MemoryLedger
from tests.features.tpu.servers.tpu import Fault, Server
from tests.features.tpu.unit.conftest import OTHER_ZONE, PLACE, PROJECT, ZONE, Request
from toolbox.features.tpu import progress, provisioning
from toolbox.features.tpu.api import TpuApi
from toolbox.features.tpu.api_errors import ApiUnavailable, CapacityError, RejectedRequest
from toolbox.features.tpu.deletion import ForeignObject
from toolbox.features.tpu.progress import Progress, TpuLost
from toolbox.features.tpu.provisioning import DifferentTpu, Provisioning
from toolbox.features.tpu.tpu_request import TpuRequest
from toolbox.features.tpu.tpu_states import Location, Phase
from toolbox.ground.model.errors import StepError
from toolbox.ground.model.resources import Owner
from toolbox.ground.model.verdicts import Cause

NODE = PLACE.node("tpu")
QUEUED = PLACE.queued_resource("tpu")
OTHER_NODE = Location(PROJECT, OTHER_ZONE).node("tpu")
STRANGER = Owner("run-2", "project", "eve", "elsewhere")
ZONES = {"zone": [ZONE, OTHER_ZONE]}
OTHER_RUNTIME = "tpu-ubuntu2204-base"

Follow = Callable[[Provisioning], Progress]


@pytest.fixture
def start(api: TpuApi, ledger: MemoryLedger, request_for: Request) -> Callable[..., Provisioning]:
    """Return a function that begins to create a TPU with these fields."""

    def begin(**fields: Any) -> Provisioning:
        created = Provisioning(api, request_for(**fields), ledger)
        created.begin()
        return created

    return begin


@pytest.fixture
def follow(server: Server, api: TpuApi) -> Follow:
    """Return a function that does steps, and moves the clock of the server between the steps, until the TPU is up."""

    def until_up(created: Provisioning) -> Progress:
        for _ in range(30):
            state = created.step(api.view(created.request.location))
            if state.is_up:
                return state
            server.advance(1)
        raise AssertionError(state)

    return until_up


Start = Callable[..., Provisioning]


def test_a_node_is_planned_then_requested_then_marked(
    server: Server, start: Start, follow: Follow, ledger: MemoryLedger
) -> None:
    created = start()
    assert ledger.calls == [f"plan {NODE}"]
    assert [node.name for node in follow(created).nodes] == [NODE]
    assert ledger.calls == [f"plan {NODE}", f"created {NODE}"]
    assert [entry.resource.kind for entry in ledger.open_resources()] == ["tpu_node"]
    assert len(server.history()) == 1


def test_a_step_needs_no_request_while_a_node_is_created(server: Server, api: TpuApi, start: Start) -> None:
    created = start()
    view = api.view(PLACE)
    before = len(server.requests())
    assert created.step(view).phase is Phase.CREATING
    assert len(server.requests()) == before


def test_slices_come_from_a_queued_resource(follow: Follow, start: Start, ledger: MemoryLedger) -> None:
    state = follow(start(slices=3))
    assert [node.id for node in state.nodes] == ["tpu-0", "tpu-1", "tpu-2"]
    assert ledger.calls == [f"plan {QUEUED}", f"created {QUEUED}"]


def test_a_request_in_the_queue_reports_its_state(server: Server, api: TpuApi, start: Start, follow: Follow) -> None:
    server.set_capacity(ZONE, nodes=0)
    created = start(spot=True)
    server.advance(5)
    state = created.step(api.view(PLACE))
    assert (state.phase, state.message) == (Phase.WAITING, "the queued resource tpu is WAITING_FOR_RESOURCES")
    server.set_capacity(ZONE, nodes=1)
    assert follow(created).is_up


def test_a_request_that_waited_too_long_has_the_cause_capacity(server: Server, api: TpuApi, start: Start) -> None:
    server.set_capacity(ZONE, nodes=0)
    created = start(spot=True, valid_until=60)
    server.advance(120)
    with pytest.raises(CapacityError) as caught:
        created.step(api.view(PLACE))
    assert caught.value.cause is Cause.CAPACITY


@pytest.mark.parametrize("fields", [{}, {"slices": 2}])
def test_a_tpu_of_an_earlier_session_is_adopted(
    server: Server, start: Start, follow: Follow, fields: dict[str, Any]
) -> None:
    start(**fields)
    assert follow(start(**fields)).is_up
    assert len(server.history()) == fields.get("slices", 1)


def test_a_lost_response_creates_one_node(server: Server, start: Start, follow: Follow) -> None:
    server.add_fault(Fault("CreateNode", "UNAVAILABLE", when="after"))
    assert follow(start()).is_up
    assert len(server.history()) == 1


def test_a_node_of_another_owner_is_not_adopted(
    api: TpuApi, start: Start, request_for: Request, ledger: MemoryLedger
) -> None:
    api.create(request_for(owner=STRANGER))
    with pytest.raises(ForeignObject, match="another owner, the run run-2 of eve on elsewhere: use another name"):
        start()
    assert ledger.open_resources() == []


@pytest.mark.parametrize(
    ("before", "after", "difference"),
    [
        ({"accelerator_type": "v6e-1"}, {}, "nodes/tpu exists already, and is a v6e-1: delete it"),
        ({"runtime_version": OTHER_RUNTIME}, {}, f"has the runtime version {OTHER_RUNTIME}"),
        ({"spot": True, "runtime_version": OTHER_RUNTIME}, {"spot": True}, f"has the runtime version {OTHER_RUNTIME}"),
        ({"slices": 2}, {"slices": 3}, "queuedResources/tpu exists already, and has 2 nodes"),
        ({"spot": True}, {}, "nodes/tpu exists already, and belongs to .*/queuedResources/tpu"),
    ],
)
def test_another_tpu_of_the_same_owner_is_not_adopted(
    server: Server,
    start: Start,
    ledger: MemoryLedger,
    before: dict[str, Any],
    after: dict[str, Any],
    difference: str,
) -> None:
    start(**before)
    for _ in range(3):
        server.advance(1)
    entries = ledger.open_resources()
    with pytest.raises(DifferentTpu, match=difference) as caught:
        start(**after)
    assert caught.value.cause is Cause.CONFIGURATION
    assert ledger.open_resources() == entries


@pytest.mark.parametrize("fields", [{}, {"slices": 2}])
def test_a_tpu_that_an_earlier_session_was_deleting_is_created_again(
    server: Server, api: TpuApi, start: Start, follow: Follow, ledger: MemoryLedger, fields: dict[str, Any]
) -> None:
    created = start(**fields)
    follow(created)
    api.delete(created.request.full_name)
    created = start(**fields)
    assert not created.is_requested
    state = created.step(api.view(PLACE))
    assert (state.phase, "is deleted" in state.message) == (Phase.WAITING, True)
    assert follow(created).is_up
    (entry,) = ledger.open_resources()
    assert (entry.resource, entry.is_created) == (created.request.resource, True)
    assert set(server.created_twice()) == set(created.request.node_names)


def test_a_tpu_that_was_created_after_its_deletion_is_replaced(
    api: TpuApi, server: Server, start: Start, follow: Follow, request_for: Request, ledger: MemoryLedger
) -> None:
    ledger.plan(request_for().resource)
    ledger.mark_absent(request_for().resource)
    api.create(request_for())
    created = start()
    assert not created.is_requested
    assert follow(created).is_up
    assert server.created_twice() == [NODE]


@pytest.mark.parametrize("fields", [{}, {"slices": 2}])
def test_a_tpu_whose_labels_were_changed_stays_in_the_ledger(
    api: TpuApi, start: Start, request_for: Request, ledger: MemoryLedger, fields: dict[str, Any]
) -> None:
    ledger.plan(request_for(**fields).resource)
    api.create(request_for(owner=STRANGER, **fields))
    with pytest.raises(ForeignObject, match="if only its labels were changed, and it is yours, use `gcloud compute"):
        start(**fields)
    assert [entry.resource.name for entry in ledger.open_resources()] == [request_for(**fields).full_name]


def test_the_tpu_of_another_owner_in_a_zone_without_capacity_is_not_deleted(
    server: Server, api: TpuApi, start: Start, follow: Follow, request_for: Request
) -> None:
    server.add_fault(Fault("CreateNode", "RESOURCE_EXHAUSTED", zone=ZONE))
    created = start(**ZONES)
    api.create(request_for(owner=STRANGER))
    assert follow(created).nodes[0].name == OTHER_NODE
    assert server.leftovers() == [NODE, OTHER_NODE]


def test_a_stock_out_moves_to_the_next_zone(server: Server, start: Start, follow: Follow, ledger: MemoryLedger) -> None:
    server.set_capacity(ZONE, nodes=0)
    state = follow(start(**ZONES))
    assert [node.name for node in state.nodes] == [OTHER_NODE]
    assert [entry.resource.name for entry in ledger.open_resources()] == [OTHER_NODE]


def test_a_refused_call_moves_to_the_next_zone(server: Server, start: Start, follow: Follow) -> None:
    server.add_fault(Fault("CreateNode", "RESOURCE_EXHAUSTED", zone=ZONE, times=None))
    assert follow(start(**ZONES)).nodes[0].name == OTHER_NODE


def test_a_failed_queued_resource_is_deleted_before_the_next_zone(server: Server, start: Start, follow: Follow) -> None:
    created = start(spot=True, **ZONES)
    server.fail_queued_resource("tpu", "RESOURCE_EXHAUSTED", "no capacity")
    follow(created)
    assert server.leftovers() == [OTHER_NODE, OTHER_NODE.replace("nodes", "queuedResources")]


@pytest.mark.parametrize("when", ["before", "operation"])
def test_no_capacity_in_all_zones_is_an_error_that_names_them(
    server: Server, start: Start, follow: Follow, ledger: MemoryLedger, when: Any
) -> None:
    server.add_fault(Fault("CreateNode", "RESOURCE_EXHAUSTED", when=when, times=None))
    with pytest.raises(CapacityError, match=rf"no zone has capacity for tpu \({ZONE}, {OTHER_ZONE}\)") as caught:
        follow(start(**ZONES))
    assert caught.value.cause is Cause.CAPACITY
    assert str(caught.value).count("\n") < 5
    assert server.leftovers() == []
    assert ledger.open_resources() == []


def test_a_resumed_run_stays_in_the_zone_that_it_reached(server: Server, start: Start, follow: Follow) -> None:
    server.set_capacity(ZONE, nodes=0)
    created = start(**ZONES)
    follow(created)
    server.set_capacity(ZONE, nodes=None)
    assert follow(start(**ZONES)).nodes[0].name == OTHER_NODE
    assert server.leftovers() == [OTHER_NODE]


@pytest.mark.parametrize(
    ("fault", "kind", "is_open"),
    [
        (Fault("CreateNode", "PERMISSION_DENIED", times=None), RejectedRequest, False),
        (Fault("CreateNode", "INVALID_ARGUMENT", times=None), RejectedRequest, False),
        (Fault("CreateNode", "NOT_FOUND", times=None), RejectedRequest, False),
        (Fault("CreateNode", "UNAVAILABLE", times=None), ApiUnavailable, True),
        (Fault("CreateNode", hang=True, times=None), ApiUnavailable, True),
        (Fault("CreateNode", "INVALID_ARGUMENT", when="operation"), RejectedRequest, False),
        (Fault("CreateNode", "INTERNAL", when="operation"), ApiUnavailable, False),
    ],
)
def test_a_failed_creation_stays_in_the_ledger_unless_nothing_was_created(
    server: Server,
    start: Start,
    follow: Follow,
    ledger: MemoryLedger,
    fault: Fault,
    kind: type[Exception],
    is_open: bool,
) -> None:
    server.add_fault(fault)
    with pytest.raises(kind):
        follow(start())
    assert bool(ledger.open_resources()) is is_open


@pytest.mark.parametrize("code", ["UNAUTHENTICATED", "PERMISSION_DENIED"])
def test_a_tpu_of_an_earlier_session_stays_in_the_ledger_if_the_credentials_have_expired(
    server: Server, start: Start, ledger: MemoryLedger, code: str
) -> None:
    start()
    server.add_fault(Fault("*", code, times=None))
    with pytest.raises(RejectedRequest):
        start()
    assert [entry.resource.name for entry in ledger.open_resources()] == [NODE]


def test_a_slow_operation_does_not_end_the_wait(server: Server, start: Start, api: TpuApi, follow: Follow) -> None:
    server.add_fault(Fault("CreateNode", operation_seconds=2000))
    created = start()
    server.advance(1900)
    assert created.step(api.view(PLACE)).phase is Phase.CREATING
    server.advance(200)
    assert follow(created).is_up


def test_a_node_that_is_preempted_while_it_is_created_is_lost(server: Server, start: Start, api: TpuApi) -> None:
    created = start()
    server.advance()
    server.preempt("tpu")
    with pytest.raises(TpuLost, match="the node tpu was preempted") as caught:
        created.step(api.view(PLACE))
    assert caught.value.cause is Cause.INFRASTRUCTURE


def test_a_node_that_another_user_deletes_is_lost(server: Server, start: Start, api: TpuApi) -> None:
    created = start()
    server.advance()
    api.delete(NODE)
    server.advance()
    with pytest.raises(TpuLost, match="was deleted while it was being created"):
        created.step(api.view(PLACE))


def test_a_node_that_is_not_healthy_is_awaited(server: Server, start: Start, api: TpuApi, follow: Follow) -> None:
    created = start()
    server.advance()
    server.set_health("tpu", "TIMEOUT", "no answer")
    state = created.step(api.view(PLACE))
    assert state == Progress(Phase.CREATING, "the node tpu is READY but not healthy (TIMEOUT): no answer")
    server.set_health("tpu", "HEALTHY")
    assert follow(created).is_up


def test_a_view_from_before_the_request_does_not_count_as_a_loss(server: Server, start: Start, api: TpuApi) -> None:
    view = api.view(PLACE)
    created = start()
    server.advance()
    assert created.step(view).is_up


def test_the_loop_reports_each_state_once_and_ends_in_time(
    server: Server, api: TpuApi, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_FIRST_PAUSE", 0.01)
    server.set_capacity(ZONE, nodes=0)
    reports: list[str] = []
    with pytest.raises(StepError, match=r"not up after 1 s: .*is (WAITING|CREATING|ACCEPTED)") as caught:
        provisioning.follow(api, start(spot=True), timeout=1, report=reports.append)
    assert caught.value.cause is Cause.CAPACITY
    assert len(reports) == len(set(reports))


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (lambda server: server.preempt("tpu"), "the node tpu was preempted"),
        (lambda server: server.repair("tpu"), "the node tpu is being repaired (maintenance)"),
        (lambda server: server.maintain("tpu"), "the node tpu is READY but not healthy (UNHEALTHY_MAINTENANCE)"),
        (lambda server: server.set_health("tpu", "TIMEOUT"), ""),
        (lambda _: None, ""),
    ],
    ids=["preempted", "repaired", "maintained", "slow", "well"],
)
def test_the_loss_of_a_tpu_is_reported_with_its_reason(
    server: Server, api: TpuApi, start: Start, follow: Follow, harm: Callable[[Server], None], reason: str
) -> None:
    created = start()
    follow(created)
    harm(server)
    assert provisioning.loss_reason(created.request, api.view(PLACE)).startswith(reason)
    assert bool(provisioning.loss_reason(created.request, api.view(PLACE))) is bool(reason)


def test_the_loss_of_spot_capacity_names_the_queued_resource(
    server: Server, api: TpuApi, start: Start, follow: Follow
) -> None:
    created = start(spot=True)
    follow(created)
    server.preempt("tpu")
    server.advance(60)
    assert "tpu" in provisioning.loss_reason(created.request, api.view(PLACE))


def test_the_command_of_the_ledger_deletes_the_tpu(request_for: Request) -> None:
    request: TpuRequest = request_for()
    resource = request.resource
    assert resource.command.endswith(
        f"tpu delete tpu --project={PROJECT} --zone={ZONE} --api_endpoint={request.description.api_endpoint}"
    )


def test_a_queued_resource_that_finds_no_capacity_while_its_nodes_are_created_is_not_lost(
    start: Callable[..., Provisioning], follow: Follow, server: Server
) -> None:
    """The API first suspends the queued resource, and then reports why it has failed."""
    server.add_fault(Fault("ProvisionQueuedResource", "RESOURCE_EXHAUSTED", when="operation"))
    state = follow(start(spot=True, **ZONES))
    assert [node.name for node in state.nodes] == [OTHER_NODE]
