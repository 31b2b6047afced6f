"""The description of a TPU: the fields that a target of the backend `tpu_vm` and the commands `tpu` have in common.

The model reports every fault that can be found without a request, before anything starts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from toolbox.features.tpu import api_endpoint
from toolbox.features.tpu.api_endpoint import ApiEndpoint
from toolbox.ground.model import accelerators, addresses
from toolbox.ground.model.accelerators import TpuType
from toolbox.ground.model.prices import Rental, Tier
from toolbox.ground.model.quantities import Seconds
from toolbox.ground.model.resources import LABEL_PREFIX
from toolbox.ground.model.text import abbreviated, counted

OWN_LABELS: Final = LABEL_PREFIX
"""The prefix of the labels that Topgallant sets, which a description may not contain."""
MAX_SCRIPT_BYTES: Final = 1 << 17  # a value of the metadata may have 256 KiB
_MAX_LABELS: Final = 48  # Google allows 64; the others are for the owner
_LONGEST_LABEL: Final = 63
_MAX_LABEL_BYTES: Final = 128
_LONGEST_NAME: Final = 63
_SLICE_SUFFIX: Final = 4  # the characters of `-255`, which the API appends to the name of each slice
_PART: Final = r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?"
_PROJECT: Final = r"(?:[a-z0-9.-]+:)?[a-z][-a-z0-9]{4,28}[a-z0-9]|[0-9]{6,20}"
_EMAIL: Final = r"[A-Za-z0-9._-]{1,64}@[A-Za-z0-9.-]{1,190}"
_DISK: Final = re.compile(rf"projects/(?:{_PROJECT})/zones/(?P<zone>[a-z0-9-]+)/disks/{_PART}")


def matching(description: str, pattern: str) -> AfterValidator:
    """Return a validator for texts that match a pattern as a whole."""
    regex = re.compile(pattern, re.ASCII)

    def check(text: str) -> str:
        if not regex.fullmatch(text):
            raise ValueError(f"{abbreviated(text)} is not {description}")
        return text

    return AfterValidator(check)


def name_fault(name: str, slices: int = 1) -> str:
    """Return why a text cannot be the name of a TPU; empty if it can be."""
    longest = _LONGEST_NAME - (_SLICE_SUFFIX if slices > 1 else 0)
    if len(name) <= longest and re.fullmatch(_PART, name):
        return ""
    return (
        f"{abbreviated(name)} is not a name of a TPU: use at most {longest} lower-case letters, digits and `-`, and "
        "begin with a letter"
    )


def full_name(collection: str) -> AfterValidator:
    """Return a validator for full names in the API: `nodes` for `projects/PROJECT/locations/ZONE/nodes/NAME`."""
    form = f"projects/PROJECT/locations/ZONE/{collection}/NAME"
    return matching(f"a name such as {form}", rf"projects/(?:{_PROJECT})/locations/[a-z0-9-]+/{collection}/{_PART}")


def is_endpoint(text: str) -> str:
    """Check the address of the TPU API, and return it.

    Raises:
        ValueError: see `toolbox.features.tpu.api_endpoint.parse`.
    """
    api_endpoint.parse(text)
    return text


def _one_or_more(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def _zones(zones: Sequence[str]) -> Sequence[str]:
    if not zones:
        raise ValueError("must name at least one zone, such as us-central1-b")
    for zone in zones:
        accelerators.region(zone)
    if len(set(zones)) < len(zones):
        raise ValueError("must not name a zone twice")
    return zones


def _is_label_character(character: str) -> bool:
    is_lower = character.isalpha() and character == character.lower()
    return is_lower or character in "0123456789_-"


def _check_label_part(text: str, kind: str) -> None:
    is_short = len(text) <= _LONGEST_LABEL and len(text.encode()) <= _MAX_LABEL_BYTES
    if not is_short or not all(map(_is_label_character, text)):
        raise ValueError(
            f"{abbreviated(text)} is not a {kind} of a label: use at most {_LONGEST_LABEL} lower-case letters, digits, "
            "`_` and `-`"
        )


def _labels(labels: dict[str, str]) -> dict[str, str]:
    if len(labels) > _MAX_LABELS:
        raise ValueError(f"must have at most {_MAX_LABELS} entries")
    for key, value in labels.items():
        _check_label_part(key, "key")
        _check_label_part(value, "value")
        if not key[:1].isalpha():
            raise ValueError(f"{abbreviated(key)} is not a key of a label: begin with a lower-case letter")
        if key.startswith(OWN_LABELS):
            raise ValueError(f"the label `{key}` is reserved: choose a name that does not begin with {OWN_LABELS}")
    return labels


Name = Annotated[str, matching("a name: lower-case letters, digits and `-`", _PART)]
Project = Annotated[str, matching("the id or the number of a Google Cloud project", _PROJECT)]
Network = Annotated[
    str,
    matching("a network: write its name, or projects/PROJECT/...", rf"{_PART}|projects/(?:{_PROJECT})/[a-z0-9/-]+"),
]
Reservation = Annotated[
    str,
    matching(
        "a reservation: write its name, or projects/PROJECT/locations/ZONE/reservations/NAME",
        rf"{_PART}|projects/(?:{_PROJECT})/locations/[a-z0-9-]+/reservations/(?:-|{_PART})",
    ),
]
Scope = Annotated[
    str, matching("an OAuth scope such as https://www.googleapis.com/auth/cloud-platform", r"https://[\w./-]+")
]


class _Part(BaseModel):
    """A mapping in the description of a TPU."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Ssh(_Part):
    """How to reach the workers by SSH.

    Args:
        user: the user to log in as. The workers create this user for the key of the run.
        port: the port of the SSH servers.
        internal: connect to the internal addresses. This works from a machine in the same network.
    """

    user: Annotated[str, AfterValidator(addresses.user)] = "topgallant"
    port: int = Field(default=22, ge=1, le=65535)
    internal: bool = False


class ServiceAccount(_Part):
    """The service account of the workers.

    Args:
        email: the account.
        scopes: the OAuth scopes of its tokens.
    """

    email: Annotated[str, matching("the email address of a service account", _EMAIL)]
    scopes: tuple[Scope, ...] = ("https://www.googleapis.com/auth/cloud-platform",)


class DataDisk(_Part):
    """An existing persistent disk to attach to the workers, for example with caches or model weights.

    Args:
        source: the name of the disk, or `projects/PROJECT/zones/ZONE/disks/NAME`.
        mode: `read-only` for a disk that several workers share.
    """

    source: Annotated[
        str,
        matching("a disk: write its name, or projects/PROJECT/zones/ZONE/disks/NAME", rf"{_PART}|{_DISK.pattern}"),
    ]
    mode: Literal["read-write", "read-only"] = "read-write"

    def path(self, project: str, zone: str) -> str:
        """Return the full name of the disk."""
        return self.source if "/" in self.source else f"projects/{project}/zones/{zone}/disks/{self.source}"

    @property
    def zone(self) -> str | None:
        """The zone in the full name of the disk; None if the source is only a name."""
        match = _DISK.fullmatch(self.source)
        return match["zone"] if match else None


class TpuDescription(_Part):
    """A TPU to create.

    Args:
        project: the Google Cloud project that pays for the TPU.
        zone: the zone, or several zones to try in this order until one has capacity.
        accelerator_type: the type, such as `v6e-8`. `v5e-8` is accepted for `v5litepod-8`.
        type: the generation, such as `v6e`, with `topology` instead of `accelerator_type`.
        topology: the chips in each dimension, such as `2x4`.
        runtime_version: the image of the workers, such as `v2-alpha-tpuv6e`.
        network: the network of the workers; the default network of the project when left out.
        subnetwork: the subnetwork of the workers.
        external_ips: give each worker an external address.
        tags: the network tags of the workers, for firewall rules.
        spot: use spot capacity, which is cheaper, and which Google Cloud may take away at any time.
        preemptible: use preemptible capacity, the predecessor of spot: it ends after 24 hours.
        reserved: use reserved capacity: true for any reservation of the project, or the name of a reservation.
        labels: labels of the nodes, in addition to those of Topgallant.
        service_account: the service account of the workers; the default account of the project when left out.
        startup_script: a script that each worker executes as root when it starts. The TPU is ready when the script has
            ended.
        startup_script_file: a file with the startup script.
        data_disks: existing persistent disks to attach to the workers.
        valid_until: how many seconds a request may wait in the queue for capacity. With this field, the TPU is created
            by a queued resource.
        slices: the number of nodes of a multislice TPU.
        api_endpoint: the address of the TPU API: `HOST[:PORT]`, or `http://127.0.0.1:PORT` for a test server.
        ttl: the seconds from the request until `resources reap` of any user may delete the TPU.
    """

    project: Project
    zone: Annotated[tuple[str, ...], BeforeValidator(_one_or_more), AfterValidator(_zones)]
    accelerator_type: str | None = None
    type: str | None = None
    topology: str | None = None
    runtime_version: Annotated[str, matching("a runtime version such as tpu-ubuntu2204-base", r"[a-z0-9][\w.-]{0,99}")]
    network: Network | None = None
    subnetwork: Network | None = None
    external_ips: bool = True
    tags: tuple[Name, ...] = ()
    spot: bool = False
    preemptible: bool = False
    reserved: bool | Reservation = False
    labels: Annotated[dict[str, str], AfterValidator(_labels)] = {}
    service_account: ServiceAccount | None = None
    startup_script: str | None = Field(default=None, min_length=1)
    startup_script_file: Path | None = None
    data_disks: tuple[DataDisk, ...] = ()
    valid_until: Seconds | None = None
    slices: int = Field(default=1, ge=1, le=256)
    ssh: Ssh = Ssh()
    api_endpoint: Annotated[str, AfterValidator(is_endpoint)] = api_endpoint.DEFAULT
    ttl: Seconds = 14400

    @field_validator("service_account", mode="before")
    @classmethod
    def _account(cls, value: Any) -> Any:
        return {"email": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check(self) -> Self:
        faults = [*_type_faults(self), *_tier_faults(self), *_network_faults(self), *_disk_faults(self)]
        faults += [*_script_faults(self), *_time_faults(self)]
        if faults:
            raise ValueError("; ".join(faults))
        return self

    @property
    def tpu_type(self) -> TpuType:
        """The type of each slice."""
        if self.accelerator_type is not None:
            return accelerators.parse(self.accelerator_type)
        assert self.type is not None, "_type_faults checks the fields"
        assert self.topology is not None, "_type_faults checks the fields"
        return accelerators.of_topology(self.type, self.topology)

    def rentals(self) -> list[Rental]:
        """Return what the TPU rents in each of its zones, for the price. Preemptible capacity has the price of spot."""
        tier = Tier.SPOT if self.spot or self.preemptible else Tier.RESERVED if self.reserved else Tier.ON_DEMAND
        name = self.tpu_type.name
        rentals = (Rental.of_tpu(name, zone=zone, tier=tier, slices=self.slices) for zone in self.zone)
        return list(dict.fromkeys(rentals))

    @property
    def workers(self) -> int:
        """The number of workers of all slices."""
        return self.tpu_type.hosts * self.slices

    @property
    def is_queued(self) -> bool:
        """Whether the TPU is created by a queued resource.

        Only queued resources have several slices, wait for capacity, and name a reservation. A plain node of another
        TPU is created or refused at once, and needs fewer permissions and requests.
        """
        return self.slices > 1 or self.spot or self.valid_until is not None or isinstance(self.reserved, str)

    @property
    def is_default_endpoint(self) -> bool:
        """Whether the TPU API is that of Google Cloud."""
        return self.api_endpoint == api_endpoint.DEFAULT

    @property
    def endpoint(self) -> ApiEndpoint:
        """The address of the TPU API."""
        return api_endpoint.parse(self.api_endpoint)

    def script(self) -> str:
        """Return the startup script; empty if there is none.

        Raises:
            ValueError: the file cannot be read, or is not a text.
        """
        if self.startup_script_file is None:
            return self.startup_script or ""
        try:
            with self.startup_script_file.open("rb") as file:
                content = file.read(MAX_SCRIPT_BYTES + 1)
            return content.decode()
        except OSError as error:
            raise ValueError(f"startup_script_file cannot be read: {error}") from error
        except UnicodeDecodeError as error:
            if len(content) > MAX_SCRIPT_BYTES:
                return content.decode(errors="replace")  # a character was cut in half; the size is the fault to report
            raise ValueError(f"startup_script_file {self.startup_script_file} is not UTF-8") from error


def _type_faults(tpu: TpuDescription) -> list[str]:
    if tpu.accelerator_type is not None and (tpu.type is not None or tpu.topology is not None):
        return ["use either accelerator_type, or type and topology"]
    if tpu.accelerator_type is None and (tpu.type is None or tpu.topology is None):
        if tpu.topology is not None:
            return ["topology needs type, such as type: v6e"]
        if tpu.type is not None:
            return ["type needs topology, such as topology: 2x4"]
        return ["accelerator_type is missing: write a type such as v6e-8, or use type and topology"]
    try:
        _ = tpu.tpu_type
    except ValueError as error:
        return [str(error)]
    return []


def _tier_faults(tpu: TpuDescription) -> list[str]:
    tiers = [name for name in ("spot", "preemptible", "reserved") if getattr(tpu, name)]
    faults = [f"use only one of {' and '.join(tiers)}"] if len(tiers) > 1 else []
    if tpu.preemptible and tpu.is_queued and not tpu.spot:
        faults.append("preemptible capacity cannot be queued (slices, valid_until): use spot: true")
    if isinstance(tpu.reserved, str) and "/" in tpu.reserved:
        zone = tpu.reserved.split("/")[3]
        faults += [f"the reservation is in the zone {zone}, not in {other}" for other in tpu.zone if other != zone][:1]
    return faults


def _network_faults(tpu: TpuDescription) -> list[str]:
    if not tpu.external_ips and not tpu.ssh.internal:
        return ["external_ips: false needs ssh: {internal: true}, and a machine in the network of the workers"]
    return []


def _disk_faults(tpu: TpuDescription) -> list[str]:
    faults = []
    for disk in tpu.data_disks:
        other = next((zone for zone in tpu.zone if disk.zone not in {None, zone}), None)
        if other is not None:
            faults.append(f"the disk {disk.source} is not in the zone {other}: a disk belongs to one zone")
        if disk.mode == "read-write" and not _type_faults(tpu) and tpu.workers > 1:
            count = counted(tpu.workers, "worker")
            faults.append(f"the disk {disk.source} is for {count}, so it needs mode: read-only")
    return faults


def _script_faults(tpu: TpuDescription) -> list[str]:
    if tpu.startup_script is not None and tpu.startup_script_file is not None:
        return ["use either startup_script or startup_script_file"]
    try:
        script = tpu.script()
    except ValueError as error:
        return [str(error)]
    if len(script.encode()) > MAX_SCRIPT_BYTES:
        return [f"the startup script has more than {MAX_SCRIPT_BYTES} bytes: let it download what it needs"]
    return ["the startup script contains a null character"] if "\0" in script else []


def _time_faults(tpu: TpuDescription) -> list[str]:
    if tpu.valid_until is not None and tpu.valid_until >= tpu.ttl:
        limits = f"ttl ({tpu.ttl:g} s) must be longer than valid_until ({tpu.valid_until:g} s)"
        return [f"{limits}: otherwise, the TPU may be deleted while it waits in the queue"]
    return []
