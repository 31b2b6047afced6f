"""The description of a TPU reports every fault before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from toolbox.features.tpu.tpu_description import MAX_SCRIPT_BYTES, TpuDescription, name_fault

FIELDS: dict[str, Any] = {
    "project": "my-project",
    "zone": "us-central1-b",
    "accelerator_type": "v6e-8",
    "runtime_version": "v2-alpha-tpuv6e",
}


def tpu(**fields: Any) -> TpuDescription:
    given = {**FIELDS, **fields}
    return TpuDescription.model_validate({name: value for name, value in given.items() if value is not None})


def faults(**fields: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        tpu(**fields)
    return str(caught.value)


def test_one_zone_is_a_list_of_one() -> None:
    assert tpu().zone == ("us-central1-b",)
    assert tpu(zone=["us-east5-b", "us-east5-c"]).zone == ("us-east5-b", "us-east5-c")


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"project": "-x"}, "is not the id or the number of a Google Cloud project"),
        ({"zone": "us-central1"}, "'us-central1' is not a zone: write a name such as us-central1-b"),
        ({"zone": []}, "must name at least one zone"),
        ({"zone": ["us-east5-b", "us-east5-b"]}, "must not name a zone twice"),
        ({"accelerator_type": "v6e-7"}, "v6e-7 is not a TPU type"),
        ({"accelerator_type": None}, "accelerator_type is missing"),
        ({"accelerator_type": None, "topology": "2x4"}, "topology needs type"),
        ({"accelerator_type": None, "type": "v6e"}, "type needs topology"),
        ({"topology": "2x4"}, "use either accelerator_type, or type and topology"),
        ({"accelerator_type": None, "type": "v6e", "topology": "2x2x2"}, "is not a v6e topology"),
        ({"runtime_version": "--flag"}, "is not a runtime version"),
        ({"spot": True, "reserved": True}, "use only one of spot and reserved"),
        ({"preemptible": True, "slices": 2}, "preemptible capacity cannot be queued"),
        ({"external_ips": False}, "ssh: {internal: true}"),
        ({"labels": {"Team": "x"}}, "'Team' is not a key of a label"),
        ({"labels": {"1team": "x"}}, "begin with a lower-case letter"),
        ({"labels": {"team": "x" * 64}}, "is not a value of a label"),
        ({"labels": {"topgallant-run": "x"}}, "the label `topgallant-run` is reserved"),
        ({"labels": {f"k{index}": "" for index in range(49)}}, "must have at most 48 entries"),
        ({"network": "-net"}, "is not a network"),
        ({"tags": ["Tag"]}, "is not a name"),
        ({"service_account": "nobody"}, "is not the email address of a service account"),
        ({"startup_script": "x", "startup_script_file": "y"}, "use either startup_script or startup_script_file"),
        ({"startup_script_file": "/no/such/file"}, "startup_script_file cannot be read"),
        ({"startup_script": "x" * (MAX_SCRIPT_BYTES + 1)}, "let it download what it needs"),
        ({"startup_script": "a\0b"}, "null character"),
        ({"data_disks": [{"source": "../x"}]}, "is not a disk"),
        ({"data_disks": [{"source": "d"}], "slices": 2}, "the disk d is for 2 workers, so it needs mode: read-only"),
        ({"valid_until": 14400}, "ttl (14400 s) must be longer than valid_until"),
        ({"ssh": {"user": "-o"}}, "is not a user"),
        ({"ssh": {"port": 0}}, "greater than or equal to 1"),
        ({"api_endpoint": "http://tpu.googleapis.com:80"}, "only an address of this machine is allowed"),
        ({"api_endpoint": "http://127.0.0.1:80@evil.example:1"}, "is not an API endpoint"),
        ({"api_endpoint": "http://127.0.0.1:1/path"}, "is not an API endpoint"),
        ({"api_endpoint": "-x"}, "is not an API endpoint"),
        ({"reserved": "projects/my-project/locations/us-east5-b/reservations/r"}, "the reservation is in the zone"),
        ({"unknown": 1}, "Extra inputs are not permitted"),
    ],
)
def test_a_fault_is_reported(fields: dict[str, Any], fault: str) -> None:
    assert fault in faults(**fields)


def test_all_faults_are_reported_at_once() -> None:
    text = faults(accelerator_type="v6e-7", spot=True, reserved=True, valid_until=99999)
    assert all(part in text for part in ("v6e-7 is not a TPU type", "use only one of", "ttl (14400 s)"))


def test_a_disk_of_another_zone_is_refused() -> None:
    source = "projects/my-project/zones/us-east5-b/disks/weights"
    assert "is not in the zone us-central1-b" in faults(data_disks=[{"source": source}])
    assert tpu(zone="us-east5-b", data_disks=[{"source": source}]).data_disks[0].path("p", "z") == source


@pytest.mark.parametrize(
    "fields", [{"slices": 2}, {"spot": True}, {"valid_until": 600}, {"reserved": "my-reservation"}]
)
def test_slices_spot_and_waiting_need_a_queued_resource(fields: dict[str, Any]) -> None:
    assert tpu(**fields).is_queued


@pytest.mark.parametrize("fields", [{}, {"preemptible": True}, {"reserved": True}])
def test_other_tpus_are_plain_nodes(fields: dict[str, Any]) -> None:
    assert not tpu(**fields).is_queued


def test_the_name_of_a_generation_is_accepted_in_a_type() -> None:
    assert tpu(accelerator_type="v5e-16").tpu_type.name == "v5litepod-16"


def test_the_workers_of_all_slices_are_counted() -> None:
    assert tpu(accelerator_type=None, type="v6e", topology="4x4", slices=2).workers == 8


def test_a_script_is_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "start.sh").write_text("true\n")
    assert tpu(startup_script_file=tmp_path / "start.sh").script() == "true\n"


def test_a_script_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "start.sh").write_bytes(b"\xff\xfe")
    assert "is not UTF-8" in faults(startup_script_file=tmp_path / "start.sh")


def test_a_label_may_have_international_letters() -> None:
    assert tpu(labels={"größe": "八"}).labels == {"größe": "八"}


def test_a_short_service_account_is_its_email() -> None:
    account = tpu(service_account="ci@my-project.iam.gserviceaccount.com").service_account
    assert account is not None
    assert account.email == "ci@my-project.iam.gserviceaccount.com"


@pytest.mark.parametrize("name", ["", "Upper", "1st", "-x", "x-", "x" * 64, "a/b"])
def test_a_wrong_name_is_refused(name: str) -> None:
    assert "is not a name of a TPU" in name_fault(name)


def test_a_name_leaves_room_for_the_number_of_the_slice() -> None:
    assert name_fault("x" * 63) == ""
    assert "at most 59" in name_fault("x" * 63, slices=2)
