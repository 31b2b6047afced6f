"""Finds the TPU with a name and its workers, and deletes the TPU, for the commands of `tpu`."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from toolbox.features.tpu import api_endpoint, deletion, existing, ssh_keys, tpu_request, worker_readiness, workers
from toolbox.features.tpu.api import TpuApi
from toolbox.features.tpu.api_errors import TpuApiError
from toolbox.features.tpu.existing import ExistingTpu
from toolbox.features.tpu.progress import TpuLost
from toolbox.features.tpu.ssh_keys import SshKey
from toolbox.features.tpu.tpu_description import Project, Ssh, name_fault
from toolbox.features.tpu.tpu_states import Location, Node
from toolbox.features.tpu.workers import Worker
from toolbox.ground.model import accelerators
from toolbox.ground.model.errors import StepError, UsageError
from toolbox.ground.model.resources import OpenResource, Owner, ResourceLedger
from toolbox.ground.model.text import counted, without_kind
from toolbox.ground.model.verdicts import Cause
from toolbox.records.runs import ledger, steps
from toolbox.records.runs.steps import Step
from toolbox.targets.ssh_machine import Login

log = logging.getLogger(__name__)

Model = TypeVar("Model", bound=BaseModel)

_FULL_NAME: Final = re.compile(r"projects/(?P<project>[^/]+)/locations/(?P<zone>[^/]+)/\w+/(?P<name>[^/]+)")
_EVERYWHERE: Final = "-"  # the API takes it for all zones


@dataclass(frozen=True, slots=True)
class NamedTpu:
    """A TPU that a person names on the command line.

    Args:
        endpoint: the text of the API endpoint.
    """

    name: str
    location: Location
    endpoint: str

    @classmethod
    def of(cls, name: str, project: str | None, zone: str | None, endpoint: str | None) -> NamedTpu:
        """Return the TPU with this name. The ledger of this user or run has the values that the command line omits.

        Raises:
            UsageError: an argument is wrong, or the ledger does not have exactly one such TPU.
        """
        if fault := name_fault(name):
            raise UsageError(fault)
        entries = _entries()
        present = [entry for entry in entries if not entry.is_absent]
        for candidates in (present, entries):
            tpus = [tpu for entry in candidates if (tpu := _of_entry(entry)) is not None]
            found = [tpu for tpu in tpus if tpu.matches(name, project, zone, endpoint)]
            if len(found) == 1:
                return found[0]
        if project is not None and zone is not None:
            return cls(name, location(project, zone), checked_endpoint(endpoint))
        what = "no TPU" if not found else counted(len(found), "TPU")
        raise UsageError(f"the ledger has {what} with the name {name}: pass --project and --zone")

    def matches(self, name: str, project: str | None, zone: str | None, endpoint: str | None) -> bool:
        """Return whether the TPU has these properties. None matches every value."""
        pairs = [(project, self.location.project), (zone, self.location.zone), (endpoint, self.endpoint)]
        return self.name == name and all(given in {None, value} for given, value in pairs)

    def open(self) -> TpuApi:
        """Return a connection to the API."""
        return TpuApi(api_endpoint.parse(self.endpoint))

    def find(self, api: TpuApi) -> ExistingTpu:
        """Return the TPU.

        Raises:
            StepError: the TPU does not exist, or the API does not answer.
        """
        try:
            return existing.find(api, self.location, self.name)
        except TpuApiError as error:
            if error.is_absent:
                where = f"in {self.location.zone} of {self.location.project}"
                hint = f"`tpu list --project={self.location.project}` shows what exists"
                raise StepError(f"there is no TPU {self.name} {where}: {hint}", cause=Cause.CONFIGURATION) from None
            raise


def location(project: str, zone: str) -> Location:
    """Return a location.

    Raises:
        UsageError: the project or the zone has a wrong form.
    """
    try:
        TypeAdapter(Project).validate_python(project)
        if zone != _EVERYWHERE:
            accelerators.region(zone)
    except ValidationError as error:
        raise UsageError(f"--project: {without_kind(error.errors()[0]['msg'])}") from None
    except ValueError as error:
        raise UsageError(f"--zone: {error}") from None
    return Location(project, zone)


def checked_endpoint(text: str | None) -> str:
    """Check the address of the TPU API, and return it. None stands for the API of Google Cloud.

    Raises:
        UsageError: the text is not an address.
    """
    text = text or api_endpoint.DEFAULT
    try:
        api_endpoint.parse(text)
    except ValueError as error:
        raise UsageError(f"--api_endpoint: {error}") from None
    return text


def ready_workers(nodes: Sequence[Node], ssh: Ssh, key: SshKey) -> list[tuple[Worker, Login]]:
    """Return the workers of nodes, and how to reach each of them."""
    return [(worker, worker.login(ssh, key)) for worker in workers.of_nodes(nodes, ssh)]


def chosen_workers(tpu: NamedTpu, text: str, ssh: Ssh, current: Step) -> list[tuple[Worker, Login]]:
    """Return the workers of a TPU that a text selects.

    Raises:
        UsageError: the text selects no workers.
        StepError: the TPU does not exist, or is not up.
    """
    with tpu.open() as api:
        state = tpu.find(api).progress()
    if not state.is_up:
        raise StepError(f"{state.message}: `tpu wait_ready {tpu.name}` waits until the TPU is ready")
    key = ssh_keys.of_owner(current.recorder.ledger.owner, current.directory)
    found = ready_workers(state.nodes, ssh, key)
    try:
        indices = workers.select(text, len(found))
    except ValueError as error:
        raise UsageError(f"--workers: {error}") from None
    return [found[index] for index in indices]


def wait_workers(tpu: NamedTpu, api: TpuApi, nodes: Sequence[Node], ssh: Ssh, current: Step, *, timeout: float) -> int:
    """Wait until all workers are ready, and return their number."""
    key = ssh_keys.of_owner(current.recorder.ledger.owner, current.directory)
    found = ready_workers(nodes, ssh, key)

    def check() -> None:
        state = tpu.find(api).progress()
        if not state.is_up:
            raise TpuLost(f"{state.message}, although it was READY before")

    worker_readiness.wait_ready(found, current.directory, timeout=timeout, report=current.note, check=check)
    return len(found)


def delete(tpu: NamedTpu, current: Step, *, force: bool, timeout: float) -> str:
    """Delete a TPU, and return a message for the user.

    Raises:
        ForeignObject: the TPU belongs to another user, and `force` is False.
    """
    resources = current.recorder.ledger
    with tpu.open() as api:
        try:
            found = existing.find(api, tpu.location, tpu.name)
        except TpuApiError as error:
            if not error.is_absent:
                raise
            return _absent(tpu, resources)
        owner = _owner_of(found, resources.owner, force=force)
        deletion.delete(api, found.full_name, owner, timeout=timeout)
    for entry in _entries_of(tpu, resources):
        resources.mark_deleted(entry.resource)
    return f"{found.full_name} is deleted"


def _absent(tpu: NamedTpu, resources: ResourceLedger) -> str:
    """Record that a TPU does not exist, and return a message for the user."""
    for entry in _entries_of(tpu, resources):
        resources.mark_absent(entry.resource)
    states = [f": {entry.resource.name} {entry.state}" for entry in _entries_of(tpu, resources)]
    return f"there is no TPU {tpu.name} in {tpu.location.zone}" + "".join(states)


def mark_created(tpu: NamedTpu, current: Step) -> None:
    """Record in the ledger that a TPU was created completely."""
    resources = current.recorder.ledger
    for entry in _entries_of(tpu, resources):
        resources.mark_created(entry.resource)


def _entries_of(tpu: NamedTpu, resources: ResourceLedger) -> list[OpenResource]:
    """Return the entries of the ledger for a TPU."""
    keys = {
        (tpu_request.NODE, tpu.location.node(tpu.name)),
        (tpu_request.QUEUED_RESOURCE, tpu.location.queued_resource(tpu.name)),
    }
    return [entry for entry in resources.open_resources() if entry.resource.key in keys]


def _owner_of(tpu: ExistingTpu, me: Owner, *, force: bool) -> Owner:
    """Return the owner that the labels of a TPU name, if this user may delete the TPU.

    Raises:
        ForeignObject: the TPU belongs to another user or has no labels of Topgallant.
    """
    owner = Owner.from_labels(tpu.labels)
    is_mine = owner is not None and owner.labels().items() >= _user_labels(me).items()
    if owner is None or not (is_mine or force):
        raise deletion.ForeignObject(tpu.full_name, tpu.labels, "it is not deleted")
    return owner


def _user_labels(owner: Owner) -> Mapping[str, str]:
    return {key: value for key, value in owner.labels().items() if key.endswith("user")}


def _entries() -> Sequence[OpenResource]:
    current = steps.current()
    resources = current.recorder.ledger if current is not None else ledger.of_user()
    return [
        entry for entry in resources.open_resources() if entry.resource.kind in tpu_request.KINDS and entry.is_sealed
    ]


def _of_entry(entry: OpenResource) -> NamedTpu | None:
    """Return the TPU of an entry; None if the entry is not one that this version writes."""
    match = _FULL_NAME.fullmatch(entry.resource.name)
    if match is None:
        return None
    try:
        endpoint = checked_endpoint(str(entry.resource.deletion.get("api_endpoint")))
        return NamedTpu(match["name"], location(match["project"], match["zone"]), endpoint)
    except UsageError:
        return None
