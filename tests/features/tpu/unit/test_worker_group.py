"""Variables tell workers their place in the TPU. The variables have the same names as on Kubernetes."""

from __future__ import annotations

from toolbox.features.tpu.worker_group import places
from toolbox.features.tpu.workers import Worker


def workers(*slices: int) -> list[Worker]:
    return [Worker(index, slice_, f"10.0.0.{index}", f"w-{index}") for index, slice_ in enumerate(slices)]


def test_a_single_worker_needs_no_place() -> None:
    assert places(workers(0), "10.0.0.0") == [{}]


def test_the_workers_of_a_slice_are_numbered() -> None:
    chosen = workers(0, 0, 0)[1:]
    place = {"TOPGALLANT_HOSTS": "2", "TOPGALLANT_COORDINATOR": "10.0.0.1"}
    assert places(chosen, "10.0.0.1") == [{**place, "TOPGALLANT_HOST_INDEX": str(index)} for index in range(2)]


def test_the_slices_are_numbered() -> None:
    found = places(workers(0, 0, 1, 1), "10.0.0.0")
    assert [(each["TOPGALLANT_SLICE_INDEX"], each["TOPGALLANT_HOST_INDEX"]) for each in found] == [
        ("0", "0"),
        ("0", "1"),
        ("1", "0"),
        ("1", "1"),
    ]
    assert {(each["TOPGALLANT_SLICES"], each["TOPGALLANT_HOSTS"]) for each in found} == {("2", "2")}
