"""Names of TPU types give the numbers of chips and hosts that Google documents."""

import pytest

from toolbox.ground.model import accelerators


@pytest.mark.parametrize(
    ("name", "chips", "hosts"),
    [
        ("v2-8", 4, 1),
        ("v3-8", 4, 1),
        ("v3-32", 16, 4),
        ("v4-8", 4, 1),
        ("v4-16", 8, 2),
        ("v5litepod-1", 1, 1),
        ("v5litepod-4", 4, 1),
        ("v5litepod-8", 8, 1),
        ("v5litepod-16", 16, 4),
        ("v5litepod-256", 256, 64),
        ("v5p-8", 4, 1),
        ("v5p-16", 8, 2),
        ("v5p-12288", 6144, 1536),
        ("v6e-1", 1, 1),
        ("v6e-8", 8, 1),
        ("v6e-16", 16, 4),
        ("v6e-256", 256, 64),
    ],
)
def test_a_type_has_the_documented_chips_and_hosts(name: str, chips: int, hosts: int) -> None:
    tpu = accelerators.parse(name)
    assert (tpu.name, tpu.chips, tpu.hosts) == (name, chips, hosts)
    assert tpu.chips_per_host * tpu.hosts == chips


@pytest.mark.parametrize(
    ("generation", "topology", "name"),
    [
        ("v5e", "4x4", "v5litepod-16"),
        ("v5litepod", "2x4", "v5litepod-8"),
        ("v6e", "1x1", "v6e-1"),
        ("v4", "2x2x2", "v4-16"),
        ("v5p", "2x2x1", "v5p-8"),
        ("v3", "2x2", "v3-8"),
    ],
)
def test_a_topology_has_a_type(generation: str, topology: str, name: str) -> None:
    assert accelerators.of_topology(generation, topology).name == name


def test_the_name_of_a_generation_is_understood_as_a_prefix() -> None:
    assert accelerators.parse("v5e-16") == accelerators.parse("v5litepod-16")
    assert accelerators.parse("v5e-16").generation.api_name == "V5LITE_POD"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "write a name such as"),
        ("v6e", "write a name such as"),
        ("v6e-0", "write a name such as"),
        ("v6e-8\n", "write a name such as"),
        ("--zone=x", "write a name such as"),
        ("v6e-9999999999", "write a name such as"),
        ("v6-8", "did you mean v6e"),
        ("h100-8", "the generations are"),
        ("v5p-7", "each chip has two"),
        ("v5p-4", "write v5p- and 8, 16"),
        ("v5p-12", "write v5p- and 8, 16"),
        ("v6e-2", "write v6e- and 1, 4"),
        ("v6e-12", "write v6e- and 1, 4"),
        ("v6e-512", "at most 256 chips"),
    ],
)
def test_a_wrong_type_is_refused_with_a_reason(name: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        accelerators.parse(name)


@pytest.mark.parametrize(
    ("generation", "topology", "reason"),
    [
        ("v9", "4x4", "the generations are|did you mean"),
        ("v5p", "4x4", "write 3 sizes such as 2x2x2"),
        ("v6e", "2x2x2", "write 2 sizes such as 4x4"),
        ("v6e", "4x", "write 2 sizes"),
        ("v6e", "0x4", "write 2 sizes"),
        ("v6e", "3x4", "write v6e- and"),
        ("v6e", "999x999", "at most 256 chips"),
    ],
)
def test_a_wrong_topology_is_refused_with_a_reason(generation: str, topology: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        accelerators.of_topology(generation, topology)


def test_a_zone_is_in_a_region() -> None:
    assert accelerators.region("us-central1-b") == "us-central1"
    assert accelerators.region("us-east5-a") == "us-east5"


@pytest.mark.parametrize("zone", ["", "us-central1", "us-central1-b/..", "-us-central1-b", "us-central1-b\n"])
def test_text_that_is_not_a_zone_is_refused(zone: str) -> None:
    with pytest.raises(ValueError, match="write a name such as us-central1-b"):
        accelerators.region(zone)
