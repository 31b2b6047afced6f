"""Requests to the TPU API have deadlines, are repeated after temporary errors, and can be cancelled."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from tests.features.tpu.servers.tpu import Fault, Server
from tests.features.tpu.unit.conftest import OTHER_ZONE, PLACE, PROJECT, Request
from toolbox.features.tpu import api_endpoint
from toolbox.features.tpu.api import TpuApi
from toolbox.features.tpu.api_errors import ApiUnavailable, CapacityError, RejectedRequest, TpuApiError
from toolbox.features.tpu.tpu_states import Location, Phase
from toolbox.ground.model.errors import Cancelled, ConfigurationError, Interrupted
from toolbox.ground.model.prices import Tier
from toolbox.ground.model.verdicts import Cause
from toolbox.ground.system import cancellation, signals

NODE = PLACE.node("tpu")


def test_a_node_is_created_listed_and_deleted(server: Server, api: TpuApi, request_for: Request) -> None:
    created = api.create(
        request_for(labels={"team": "ml"}, tags=["ssh"], topology="2x4", type="v6e", accelerator_type=None)
    )
    assert not created.is_done
    assert created.target == NODE
    assert api.node(NODE).phase is Phase.CREATING
    server.advance()
    node = api.view(PLACE).nodes[NODE]
    assert (node.state, node.health, node.accelerator_type) == ("READY", "HEALTHY", "v6e-8")
    assert node.labels["team"] == "ml"
    assert node.labels["topgallant-project"] == "project"
    assert len(node.endpoints) == 1
    assert node.created is not None
    assert api.operation(created.name).is_done
    api.delete(NODE)
    server.advance()
    assert api.nodes(PLACE) == []


def test_a_queued_resource_has_its_tier_its_nodes_and_its_limit(
    server: Server, api: TpuApi, request_for: Request
) -> None:
    server.set_capacity("us-central1-b", nodes=0)
    api.create(
        request_for(slices=2, spot=True, valid_until=600, data_disks=[{"source": "weights", "mode": "read-only"}])
    )
    sent = server.queued_resources()[0]
    assert sent["queueingPolicy"]["validUntilDuration"] == "600s" or "validUntilTime" in str(sent)
    queued = api.queued_resource(PLACE.queued_resource("tpu"))
    assert queued.nodes == ("tpu-0", "tpu-1")
    assert queued.tier is Tier.SPOT
    assert queued.phase is Phase.WAITING
    assert queued.labels["topgallant-project"] == "project"


@pytest.mark.parametrize(
    ("fields", "tier"),
    [({}, Tier.ON_DEMAND), ({"preemptible": True}, Tier.SPOT), ({"reserved": True}, Tier.RESERVED)],
)
def test_a_node_has_its_tier(api: TpuApi, request_for: Request, fields: dict[str, bool], tier: Tier) -> None:
    api.create(request_for(**fields))
    assert api.node(NODE).tier is tier


def test_all_pages_of_a_list_are_read(
    server: Server, api: TpuApi, request_for: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolbox.features.tpu.api._PAGE", 2)
    for index in range(5):
        api.create(request_for(f"tpu-{index}"))
    assert len(api.nodes(PLACE)) == 5
    assert len(server.requests("ListNodes")) == 3


def test_a_zone_that_does_not_answer_is_reported(server: Server, api: TpuApi, caplog: pytest.LogCaptureFixture) -> None:
    server.set_unreachable("us-east5-b")
    assert api.nodes(Location(PROJECT, "-")) == []
    assert "us-east5-b did not answer" in caplog.text


@pytest.mark.parametrize("code", ["UNAVAILABLE", "INTERNAL", "ABORTED", "UNKNOWN", "DEADLINE_EXCEEDED"])
def test_a_request_is_repeated_while_the_api_is_unavailable(server: Server, api: TpuApi, code: str) -> None:
    server.add_fault(Fault("ListNodes", code))
    assert api.nodes(PLACE) == []
    assert len(server.requests("ListNodes")) == 2


def test_an_api_that_stays_unavailable_is_an_error(server: Server, api: TpuApi) -> None:
    server.add_fault(Fault("ListNodes", "UNAVAILABLE", times=None))
    with pytest.raises(ApiUnavailable, match=r"cannot be listed: .*\(UNAVAILABLE, \d+ tries in 1 s\)") as caught:
        api.nodes(PLACE)
    assert caught.value.cause is Cause.INFRASTRUCTURE


def test_a_call_that_hangs_is_given_up_and_repeated(server: Server, api: TpuApi) -> None:
    server.add_fault(Fault("ListNodes", hang=True))
    assert api.nodes(PLACE) == []


def test_a_server_that_does_not_listen_is_an_error() -> None:
    with (
        TpuApi(api_endpoint.parse("http://127.0.0.1:1"), timeout=0.5) as api,
        pytest.raises(ApiUnavailable, match="UNAVAILABLE"),
    ):
        api.nodes(PLACE)


def test_a_creation_whose_response_was_lost_is_found(server: Server, api: TpuApi, request_for: Request) -> None:
    server.add_fault(Fault("CreateNode", "UNAVAILABLE", when="after"))
    with pytest.raises(TpuApiError) as caught:
        api.create(request_for())
    assert caught.value.is_there
    assert len(server.history()) == 1


def test_a_repeated_request_for_a_queued_resource_has_the_same_id(
    server: Server, api: TpuApi, request_for: Request
) -> None:
    server.add_fault(Fault("CreateQueuedResource", "UNAVAILABLE", when="after"))
    operation = api.create(request_for(spot=True))
    assert operation.target == PLACE.queued_resource("tpu")
    assert len(server.queued_resources()) == 1


@pytest.mark.parametrize(
    ("code", "kind", "cause"),
    [
        ("PERMISSION_DENIED", RejectedRequest, Cause.CONFIGURATION),
        ("INVALID_ARGUMENT", RejectedRequest, Cause.CONFIGURATION),
        ("NOT_FOUND", RejectedRequest, Cause.CONFIGURATION),
        ("UNAUTHENTICATED", RejectedRequest, Cause.CONFIGURATION),
        ("RESOURCE_EXHAUSTED", CapacityError, Cause.CAPACITY),
    ],
)
def test_a_refused_request_is_not_repeated(
    server: Server, api: TpuApi, request_for: Request, code: str, kind: type[TpuApiError], cause: Cause
) -> None:
    server.add_fault(Fault("CreateNode", code, times=None))
    with pytest.raises(kind) as caught:
        api.create(request_for())
    assert caught.value.cause is cause
    assert len(server.requests("CreateNode")) == 1


def test_a_rate_limit_is_awaited(server: Server, api: TpuApi) -> None:
    server.add_fault(Fault("ListNodes", "RESOURCE_EXHAUSTED", reason="RATE_LIMIT_EXCEEDED"))
    assert api.nodes(PLACE) == []


def test_a_disabled_api_is_explained(server: Server, api: TpuApi) -> None:
    server.add_fault(Fault("ListNodes", "PERMISSION_DENIED", reason="SERVICE_DISABLED"))
    with pytest.raises(RejectedRequest, match="gcloud services enable"):
        api.nodes(PLACE)


def test_a_quota_of_the_project_is_explained(server: Server, api: TpuApi, request_for: Request) -> None:
    server.set_quota("TPUV6EPerProjectPerZoneForTPUAPI", 4)
    with pytest.raises(CapacityError, match="ask for more quota"):
        api.create(request_for())


def test_a_zone_that_does_not_exist_is_explained(api: TpuApi) -> None:
    with pytest.raises(RejectedRequest, match="check the project and the zone"):
        api.nodes(Location(PROJECT, "us-central1-z"))


def test_a_missing_node_is_absent(api: TpuApi) -> None:
    with pytest.raises(TpuApiError) as caught:
        api.node(NODE)
    assert caught.value.is_absent


@pytest.mark.parametrize(
    "fault", [Fault("ListNodes", hang=True, times=None), Fault("ListNodes", "UNAVAILABLE", times=None)]
)
def test_a_cancelled_scope_ends_a_request_at_once(server: Server, fault: Fault) -> None:
    server.add_fault(fault)
    with cancellation.opened() as scope, TpuApi(api_endpoint.parse(server.endpoint)) as api:
        threading.Thread(target=_cancel_when, args=(scope, lambda: server.requests("ListNodes"))).start()
        begun = time.monotonic()
        with pytest.raises(Cancelled, match="enough"):
            api.nodes(PLACE)
        assert time.monotonic() - begun < 10


def _cancel_when(scope: cancellation.CancelScope, condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    scope.cancel("enough")


def test_missing_credentials_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("CLOUDSDK_CONFIG", "/nonexistent")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nonexistent/key.json")
    with pytest.raises(ConfigurationError, match="there are no credentials for Google Cloud: run `gcloud auth"):
        TpuApi()


def test_zones_are_separate(api: TpuApi, request_for: Request) -> None:
    api.create(request_for(zone=OTHER_ZONE))
    assert api.nodes(PLACE) == []
    assert len(api.nodes(Location(PROJECT, OTHER_ZONE))) == 1


def test_a_signal_ends_a_request_but_not_inside_the_library(
    server: Server, api: TpuApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signals, "_state", signals._State())
    previous = signal.signal(signal.SIGINT, signals._handle)
    stub: Any = api._transport.list_nodes
    sent: list[Any] = []

    def future(*arguments: Any, **options: Any) -> Any:
        call = stub.future(*arguments, **options)
        signal.raise_signal(signal.SIGINT)
        sent.append(call)
        return call

    monkeypatch.setattr(api, "_transport", Mock(list_nodes=Mock(future=future), close=api._transport.close))
    server.add_fault(Fault("ListNodes", hang=True))
    try:
        with pytest.raises(Interrupted):
            api.nodes(PLACE)
    finally:
        signal.signal(signal.SIGINT, previous)
    assert [call.cancelled() for call in sent] == [True]
