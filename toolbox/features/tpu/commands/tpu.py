"""Create TPU VMs, run commands on their workers, and delete them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ValidationError

from toolbox.features.tpu import (
    named_tpu,
    progress,
    provisioning,
    ssh_keys,
    startup,
    tpu_rows,
    worker_commands,
    worker_files,
)
from toolbox.features.tpu.api import TpuApi
from toolbox.features.tpu.named_tpu import NamedTpu
from toolbox.features.tpu.tpu_description import Ssh, TpuDescription, name_fault
from toolbox.features.tpu.tpu_request import TpuRequest
from toolbox.features.tpu.tpu_states import Location
from toolbox.ground.interface import options
from toolbox.ground.interface.options import Timeout
from toolbox.ground.interface.signature import FlagGroup, Help
from toolbox.ground.model.errors import StepError, UsageError
from toolbox.ground.model.foreign_text import printable
from toolbox.ground.model.quantities import Count, Seconds
from toolbox.ground.model.text import counted, without_kind
from toolbox.ground.model.workloads import CollectLimits
from toolbox.reports.terminal import command_steps, live_view
from toolbox.reports.terminal import rows as result_rows
from toolbox.reports.terminal.rows import Format as RowFormat

log = logging.getLogger(__name__)

Format = options.Format[RowFormat]
Name = Annotated[str, Help("the name of the TPU.")]
Workers = Annotated[str, Help("the workers: `all`, a number, a range such as 1-3, or a list such as 1,4.")]
Model = TypeVar("Model", bound=BaseModel)
ApiEndpoint = Annotated[
    str | None,
    Help(
        "the address of the TPU API, as HOST[:PORT]; when left out, the address with which you created the TPU, else "
        "tpu.googleapis.com."
    ),
]


@dataclass(frozen=True, slots=True)
class PlaceFlags(FlagGroup):
    """The flags that say where an existing TPU is.

    Args:
        project: the Google Cloud project of the TPU; when left out, the project with which you created it.
        zone: the zone of the TPU; when left out, the zone in which you created it.
    """

    project: str | None = None
    zone: str | None = None
    api_endpoint: ApiEndpoint = None

    def tpu(self, name: str) -> NamedTpu:
        """Return the TPU with this name."""
        return NamedTpu.of(name, self.project, self.zone, self.api_endpoint)


@dataclass(frozen=True, slots=True)
class SshFlags(FlagGroup):
    """The flags that say how to log in to the workers of a TPU.

    Args:
        ssh_user: the user name for logging in to the workers.
        ssh_port: the port of the SSH servers of the workers.
        internal: connect to the internal addresses of the workers, from a machine in their network.
    """

    ssh_user: str = Ssh().user
    ssh_port: int = 22
    internal: bool = False

    def fields(self) -> dict[str, Any]:
        """Return the fields of the model `Ssh`."""
        return {"user": self.ssh_user, "port": self.ssh_port, "internal": self.internal}

    def parsed(self) -> Ssh:
        """Return the flags as the model `Ssh`."""
        return _parse(Ssh, self.fields(), prefix="ssh_")


class Tpu:
    """Create TPU VMs, run commands on their workers, and delete them."""

    def create(  # noqa: PLR0913  # the parameters are flags of a command
        self,
        name: str,
        *,
        project: str,
        zone: list[str],
        runtime_version: str,
        accelerator_type: str | None = None,
        type: str | None = None,  # noqa: A002  # the words of the command line
        topology: str | None = None,
        network: str | None = None,
        subnetwork: str | None = None,
        external_ips: bool = True,
        tags: list[str] | None = None,
        spot: bool = False,
        preemptible: bool = False,
        reserved: str | None = None,
        labels: dict[str, str] | None = None,
        service_account: str | None = None,
        scopes: list[str] | None = None,
        startup_script_file: Path | None = None,
        data_disks: list[dict[str, str]] | None = None,
        valid_until: Seconds | None = None,
        slices: Count = 1,
        ttl: Seconds = 14400,
        wait: bool = True,
        timeout: Timeout = 3600,
        login: SshFlags,
        api_endpoint: ApiEndpoint = None,
    ) -> str:
        """
        Create a TPU VM, or adopt the TPU VM of this name if you created it, and wait until its workers are ready.

        Args:
            name: the name of the node; for several slices, spot capacity or a queue, the name of the queued resource.
            project: the Google Cloud project that pays for the TPU.
            zone: the zone, or several zones to try in this order until one has capacity.
            runtime_version: the image of the workers, such as v2-alpha-tpuv6e.
            accelerator_type: the type of the TPU, such as v6e-8.
            type: the generation, such as v6e, with --topology instead of --accelerator_type.
            topology: the chips in each dimension, such as 2x4.
            network: the network of the workers; the default network when left out.
            subnetwork: the subnetwork of the workers.
            external_ips: give each worker an external address.
            tags: the network tags of the workers.
            spot: use spot capacity, which Google Cloud may take away at any time.
            preemptible: use preemptible capacity, which ends after 24 hours.
            reserved: the name of a reservation, or `true` for any reservation of the project.
            labels: labels of the nodes, as in {team: ml}.
            service_account: the email address of the service account of the workers.
            scopes: the OAuth scopes of the service account; cloud-platform when left out.
            startup_script_file: a script that each worker executes as root when it starts.
            data_disks: existing persistent disks, as in [{source: weights, mode: read-only}].
            valid_until: how long the request may wait for capacity, in seconds.
            slices: the number of nodes of a multislice TPU.
            ttl: the time in seconds from now until `resources reap` of any user may delete the TPU.
            wait: wait until all workers are ready.
            timeout: how long to wait, in seconds.
        """
        tpu = _parse(
            TpuDescription,
            {
                "project": project,
                "zone": zone,
                "runtime_version": runtime_version,
                "accelerator_type": accelerator_type,
                "type": type,
                "topology": topology,
                "network": network,
                "subnetwork": subnetwork,
                "external_ips": external_ips,
                "tags": tags,
                "spot": spot,
                "preemptible": preemptible,
                "reserved": _reservation(reserved),
                "labels": labels,
                "service_account": _account(service_account, scopes),
                "startup_script_file": startup_script_file,
                "data_disks": data_disks,
                "valid_until": valid_until,
                "slices": slices,
                "ttl": ttl,
                "ssh": login.fields(),
                "api_endpoint": api_endpoint,
            },
        )
        if fault := name_fault(name, slices):
            raise UsageError(f"tpu create: {fault}")
        with command_steps.opened("tpu__create") as step, TpuApi(tpu.endpoint) as api:
            ledger = step.recorder.ledger
            key = ssh_keys.of_owner(ledger.owner, step.directory)
            metadata = {"ssh-keys": key.metadata(tpu.ssh.user), "startup-script": startup.wrapped(tpu.script())}
            request = TpuRequest(name, Location(project, tpu.zone[0]), tpu, ledger.owner.labels(ttl), metadata)
            created = provisioning.Provisioning(api, request, ledger)
            created.begin()
            if not wait:
                provisioning.await_request(api, created)
                hint = f"`tpu wait_ready {name}` waits until the TPU is ready"
                return f"{created.request.full_name} is requested; {hint}"
            up = provisioning.follow(api, created, timeout=timeout, report=step.note)
            named = NamedTpu(name, created.request.location, tpu.api_endpoint)
            count = named_tpu.wait_workers(named, api, up.nodes, tpu.ssh, step, timeout=timeout)
            return f"{created.request.full_name} is ready with {counted(count, 'worker')}"

    def wait_ready(
        self,
        name: Name,
        *,
        place: PlaceFlags,
        timeout: Timeout = 3600,
        login: SshFlags,
    ) -> str:
        """
        Wait until a TPU VM is ready: its nodes are READY and healthy, SSH answers on every worker, and the startup
        script has ended with status 0.
        """
        ssh = login.parsed()
        tpu = place.tpu(name)
        with command_steps.opened("tpu__wait_ready") as step, tpu.open() as api:
            up = progress.wait_up(lambda: tpu.find(api).progress(), timeout=timeout, report=step.note)
            named_tpu.mark_created(tpu, step)
            count = named_tpu.wait_workers(tpu, api, up.nodes, ssh, step, timeout=timeout)
        return f"{name} is ready with {counted(count, 'worker')}"

    def run(
        self,
        name: Name,
        *command: str,
        workers: Workers = "all",
        place: PlaceFlags,
        login: SshFlags,
    ) -> str:
        """
        Run a command on the workers of a TPU VM, in parallel: `tpu run NAME -- python3 train.py --steps=3`.

        The output of each worker is shown, and kept with its exit status in the directory of the step.

        Args:
            command: the program and its arguments, after `--`. A single word is executed as a bash command line.
        """
        ssh = login.parsed()
        tpu = place.tpu(name)
        with command_steps.opened("tpu__run") as step:
            chosen = named_tpu.chosen_workers(tpu, workers, ssh, step)
            results = worker_commands.run(
                worker_commands.shell_text(command),
                chosen,
                step.directory,
                show=lambda worker, line: step.note(f"[{worker.index}] {line}"),
            )
            worker_commands.raise_failures(results)
        return f"the command ended with status 0 on {counted(len(results), 'worker')}"

    def fetch(
        self,
        name: Name,
        *paths: str,
        workers: Workers = "all",
        directory: Path | None = None,
        place: PlaceFlags,
        login: SshFlags,
    ) -> str:
        """
        Fetch files and directories from the workers of a TPU VM into `worker-N/files/` of a directory.

        Args:
            paths: absolute paths on the workers, or paths below the home of the SSH user.
            directory: the local directory; the directory of the step when left out.
        """
        ssh = login.parsed()
        tpu = place.tpu(name)
        try:
            worker_files.check_paths(paths)
        except ValueError as error:
            raise UsageError(f"tpu fetch: {error}") from None
        with command_steps.opened("tpu__fetch") as step:
            chosen = named_tpu.chosen_workers(tpu, workers, ssh, step)
            target = directory.absolute() if directory is not None else step.directory
            results = worker_files.fetch(paths, chosen, target, CollectLimits(), mark=step.directory)
            if faults := [f"{result.worker.name}: {result.message}" for result in results if result.message]:
                raise StepError("\n".join(faults[:4]), directory=step.directory)
        return f"the files of {counted(len(results), 'worker')} are in {target}"

    def list(
        self,
        *,
        project: str,
        zone: str = "-",
        api_endpoint: ApiEndpoint = None,
        format: Format = "text",  # noqa: A002  # the words of the command line
    ) -> str | None:
        """
        List TPU nodes, and queued resources without nodes: their state, owner, age and price.

        Args:
            project: the Google Cloud project.
            zone: the zone; all zones when left out.
        """
        place = named_tpu.location(project, zone)
        rows = tpu_rows.of_project(named_tpu.checked_endpoint(api_endpoint), place)
        if format != "text":
            return result_rows.dump(rows, tpu_rows.COLUMNS, format)
        with live_view.view() as view:
            result_rows.show(rows, tpu_rows.COLUMNS, view.console, empty=f"there are no TPUs in {project}")
        return None

    def delete(
        self,
        name: Name,
        *,
        place: PlaceFlags,
        force: bool = False,
        timeout: Timeout = 900,
    ) -> str:
        """
        Delete a TPU VM with all its nodes, and wait until it no longer exists. A missing TPU VM is not an error.

        Args:
            force: delete the TPU even if its labels name another user.
        """
        tpu = place.tpu(name)
        with command_steps.opened("tpu__delete") as step:
            return printable(named_tpu.delete(tpu, step, force=force, timeout=timeout))


def _reservation(text: str | None) -> str | bool | None:
    return {"true": True, "false": False, None: None}.get(text.lower() if text is not None else None, text)


def _account(email: str | None, scopes: list[str] | None) -> dict[str, Any] | None:
    if email is None:
        if scopes is not None:
            raise UsageError("tpu create: --scopes needs --service_account")
        return None
    return {"email": email, **({"scopes": scopes} if scopes is not None else {})}


def _parse(model: type[Model], fields: Mapping[str, Any], *, prefix: str = "") -> Model:
    """Return a model with these fields. Fields with the value None are left out.

    Args:
        prefix: the text before the name of a field in the name of its flag.

    Raises:
        UsageError: a field is wrong.
    """
    try:
        return model.model_validate({name: value for name, value in fields.items() if value is not None})
    except ValidationError as error:
        faults = [_fault(fault["loc"], fault["msg"], prefix) for fault in error.errors()]
        raise UsageError("tpu: " + "; ".join(faults)) from None


def _fault(path: tuple[int | str, ...], message: str, prefix: str) -> str:
    text = without_kind(message)
    return f"--{prefix}{'.'.join(map(str, path))}: {text}" if path else text
