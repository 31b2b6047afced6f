"""Before a run, the zones of its TPUs are checked; TPUs with labels of Topgallant are found without a ledger."""

from __future__ import annotations

import pytest

from tests.features.tpu.servers.tpu import Fault, Server
from tests.features.tpu.unit.conftest import OTHER_ZONE, ZONE, Request
from toolbox.features.tpu import labelled_tpus, verification
from toolbox.features.tpu.api import TpuApi
from toolbox.features.tpu.api_errors import ApiUnavailable
from toolbox.ground.model.errors import ConfigurationError, InfrastructureError
from toolbox.ground.model.resources import Owner

EVE = Owner("run-2", "project", "eve", "elsewhere")


def test_a_zone_with_the_type_and_the_runtime_version_is_accepted(request_for: Request) -> None:
    verification.verify("the target `tpus`", request_for(zone=[ZONE, OTHER_ZONE]).description)


def test_all_faults_of_all_zones_are_reported(request_for: Request, server: Server) -> None:
    server.set_offer(OTHER_ZONE, "v5*")
    description = request_for(zone=[ZONE, OTHER_ZONE], runtime_version="v9").description
    with pytest.raises(ConfigurationError) as caught:
        verification.verify("the target `tpus`", description)
    assert str(caught.value) == (
        f"the target `tpus`: the zone {ZONE} has no runtime version v9; the zone {OTHER_ZONE} has no accelerator type "
        f"v6e-8 (https://cloud.google.com/tpu/docs/regions); the zone {OTHER_ZONE} has no runtime version v9"
    )


def test_a_missing_permission_is_a_configuration_error(request_for: Request, server: Server) -> None:
    server.add_fault(Fault("GetAcceleratorType", "PERMISSION_DENIED"))
    with pytest.raises(ConfigurationError, match=r"the target `tpus`: .*PERMISSION_DENIED"):
        verification.verify("the target `tpus`", request_for().description)


def test_an_api_that_does_not_answer_is_not_a_configuration_error(
    request_for: Request, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verification, "TIMEOUT", 0.1)
    server.add_fault(Fault("*", "UNAVAILABLE", times=None))
    with pytest.raises(InfrastructureError, match="UNAVAILABLE"):
        verification.verify("the target `tpus`", request_for().description)


def test_tpus_of_any_owner_are_found_by_their_labels(
    api: TpuApi, request_for: Request, server: Server, owner: Owner
) -> None:
    api.create(request_for("own"))
    api.create(request_for("waiting", owner=EVE, spot=True))
    server.advance(10)
    found = list(labelled_tpus.find(request_for().description))
    assert {(each.resource.kind, each.resource.name.rpartition("/")[2], each.owner.user) for each in found} == {
        ("tpu_node", "own", owner.user),
        ("tpu_queued_resource", "waiting", "eve"),  # its node is deleted with it, and is not listed
    }
    assert {round((each.expires - each.planned).total_seconds(), -2) for each in found} == {3600}
    assert "tpu delete own --project=my-project" in next(
        each.resource.command for each in found if each.resource.kind == "tpu_node"
    )


def test_a_zone_that_does_not_answer_does_not_hide_the_tpus_of_others(
    server: Server, api: TpuApi, request_for: Request
) -> None:
    zones = [ZONE, OTHER_ZONE]
    api.create(request_for(zone=OTHER_ZONE))
    server.set_unreachable(ZONE)
    found = labelled_tpus.find(request_for(zone=zones).description)
    assert next(found).resource.name.split("/")[3] == OTHER_ZONE
    with pytest.raises(ApiUnavailable, match=f"{ZONE} did not answer"):
        next(found)
