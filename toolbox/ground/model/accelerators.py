"""Parses the names of TPU types, and returns how many chips and hosts each type has.

The number in the name of a type counts chips for v5e and v6e (`v6e-8` has 8 chips), and TensorCores, two per chip, for
v2, v3, v4 and v5p (`v5p-8` has 4 chips). Sources: the tables of configurations in
https://docs.cloud.google.com/tpu/docs/v5p (and v4, v3, v2 beside it), where each host has 4 chips, and in
https://docs.cloud.google.com/tpu/docs/v5e (and v6e): a TPU VM has 1, 4 or 8 chips, types with up to 8 chips are one VM,
and the VMs of larger types have 4 chips (`ct5lp-hightpu-4t`, `ct6e-standard-4t`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from toolbox.ground.model.nearest import did_you_mean
from toolbox.ground.model.text import abbreviated

_CORES_PER_CHIP: Final = 2  # of the generations whose names count cores
_CHIPS_PER_HOST: Final = 4  # of a slice with more than one host
_CHIPS_OF_ONE_HOST: Final = (1, 4, 8)  # the types of v5e and v6e that have one host
_TYPE = re.compile(r"([a-z0-9]{2,12})-([1-9][0-9]{0,5})")
_TOPOLOGY = re.compile(r"[1-9][0-9]{0,2}(?:x[1-9][0-9]{0,2}){1,2}")
_ZONE = re.compile(r"([a-z]+(?:-[a-z]+)+[0-9]{1,2})-[a-z]{1,2}")


@dataclass(frozen=True, slots=True)
class Generation:
    """A generation of TPUs.

    Args:
        name: the name in prices, such as `v5e`.
        prefix: the prefix in the names of types, such as `v5litepod`.
        api_name: the name in the enumeration `AcceleratorConfig.Type` of the API.
        counts_cores: whether the number in the name of a type is the number of cores, not of chips.
        dimensions: the number of dimensions of a topology.
        most_chips: the number of chips of the largest slice.
    """

    name: str
    prefix: str
    api_name: str
    counts_cores: bool
    dimensions: int
    most_chips: int


GENERATIONS: Final[Mapping[str, Generation]] = {
    generation.name: generation
    for generation in (
        Generation("v2", "v2", "V2", counts_cores=True, dimensions=2, most_chips=256),
        Generation("v3", "v3", "V3", counts_cores=True, dimensions=2, most_chips=1024),
        Generation("v4", "v4", "V4", counts_cores=True, dimensions=3, most_chips=4096),
        Generation("v5e", "v5litepod", "V5LITE_POD", counts_cores=False, dimensions=2, most_chips=256),
        Generation("v5p", "v5p", "V5P", counts_cores=True, dimensions=3, most_chips=6144),
        Generation("v6e", "v6e", "V6E", counts_cores=False, dimensions=2, most_chips=256),
    )
}
_BY_PREFIX: Final = {generation.prefix: generation for generation in GENERATIONS.values()}


@dataclass(frozen=True, slots=True)
class TpuType:
    """A type of TPU: what one slice consists of.

    Args:
        name: the name in the API, such as `v5litepod-16`.
        chips: the number of chips of one slice.
        hosts: the number of hosts (workers) of one slice. Each host is a VM.
    """

    name: str
    generation: Generation
    chips: int
    hosts: int

    @property
    def chips_per_host(self) -> int:
        """The number of chips of each host."""
        return self.chips // self.hosts


def parse(name: str) -> TpuType:
    """Parse the name of a TPU type, such as `v5litepod-16` or `v5p-8`.

    Raises:
        ValueError: there is no such type.
    """
    match = _TYPE.fullmatch(name)
    if match is None:
        raise ValueError(f"{abbreviated(name)} is not a TPU type: write a name such as v6e-8 or v5litepod-16")
    generation = _BY_PREFIX.get(match[1]) or GENERATIONS.get(match[1])
    if generation is None:
        raise ValueError(f"{name} is not a TPU type: {did_you_mean(match[1], _BY_PREFIX, label='generations')}")
    number = int(match[2])
    if generation.counts_cores and number % _CORES_PER_CHIP:
        raise ValueError(f"{name} is not a TPU type: {generation.name} counts cores, and each chip has two cores")
    return _of_chips(generation, number // _CORES_PER_CHIP if generation.counts_cores else number)


def of_topology(generation: str, topology: str) -> TpuType:
    """Return the TPU type with a topology: the chips in each dimension, such as `4x4` or `2x2x2`.

    Args:
        generation: the name or the prefix of the generation, such as `v5e` or `v5litepod`.

    Raises:
        ValueError: there is no such type.
    """
    known = GENERATIONS.get(generation) or _BY_PREFIX.get(generation)
    if known is None:
        hint = did_you_mean(generation, GENERATIONS, label="generations")
        raise ValueError(f"{abbreviated(generation)} is not a generation of TPUs: {hint}")
    sizes = [int(size) for size in topology.split("x")] if _TOPOLOGY.fullmatch(topology) else []
    if len(sizes) != known.dimensions:
        example = "4x4" if known.dimensions == 2 else "2x2x2"  # noqa: PLR2004
        raise ValueError(
            f"{abbreviated(topology)} is not a {known.name} topology: write {known.dimensions} sizes such as {example}"
        )
    return _of_chips(known, math.prod(sizes))


def region(zone: str) -> str:
    """Return the region of a zone: `us-central1` for `us-central1-b`.

    Raises:
        ValueError: the text is not a zone.
    """
    match = _ZONE.fullmatch(zone)
    if match is None:
        raise ValueError(f"{abbreviated(zone)} is not a zone: write a name such as us-central1-b")
    return match[1]


def _of_chips(generation: Generation, chips: int) -> TpuType:
    number = chips * _CORES_PER_CHIP if generation.counts_cores else chips
    name = f"{generation.prefix}-{number}"
    if chips > generation.most_chips:
        raise ValueError(f"{name} is not a TPU type: {generation.name} has at most {generation.most_chips} chips")
    if chips in _CHIPS_OF_ONE_HOST and not generation.counts_cores:
        return TpuType(name, generation, chips, hosts=1)
    if chips % _CHIPS_PER_HOST or (not generation.counts_cores and chips & (chips - 1)):
        sizes = "8, 16, 32, ..." if generation.counts_cores else "1, 4, 8, 16, 32, 64, 128 or 256"
        raise ValueError(f"{name} is not a TPU type: write {generation.prefix}- and {sizes}")
    return TpuType(name, generation, chips, hosts=chips // _CHIPS_PER_HOST)
