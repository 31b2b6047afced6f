"""What tests can do to a test server, in this process or in another one."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.servers.tpu import faults
from tests.servers.tpu.cloud import NodeRecord, Timings
from tests.servers.tpu.faults import Fault
from tests.servers.tpu.methods import Recorded

PORTS: Final = "ports.json"
UNSUPPORTED: Final = os.EX_UNAVAILABLE  # exit status of a server whose machine cannot run workers
_WAIT_SECONDS: Final = 60.0


class ControlError(Exception):
    """The server could not do what a test wanted."""


@dataclass(frozen=True, slots=True)
class Worker:
    """One VM of a node.

    Args:
        addresses: the internal address, and the external one if there is one.
        directory: files of the VM; `disk/home`, `disk/root` and `disk/topgallant` are its disk.
        startup_log: output of the startup script.
        boots: how often it was booted.
    """

    hostname: str
    addresses: Sequence[str]
    directory: Path
    startup_log: str
    boots: int
    is_running: bool


class Control(ABC):
    """A test server as tests see it. A node or queued resource can be given by its name or its id.

    Args:
        port: port of the API over gRPC, on 127.0.0.1.
        rest_port: port of the API over REST, on 127.0.0.1.
        ssh_port: port of all workers, each on its own address.
    """

    port: int
    rest_port: int
    ssh_port: int

    @property
    def endpoint(self) -> str:
        """The API over gRPC, as the field `api_endpoint` of a target takes it."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def rest_endpoint(self) -> str:
        """The API over REST, as CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU takes it."""
        return f"http://127.0.0.1:{self.rest_port}/"

    @abstractmethod
    def send(self, verb: str, **arguments: Any) -> Any:
        """Execute a verb of the console."""

    # Faults and limits

    def add_fault(self, *new: Fault) -> None:
        """Apply faults from now on."""
        for fault in new:
            self.send("add_fault", fault=faults.to_json(fault))

    def clear_faults(self) -> None:
        """Remove all faults."""
        self.send("clear_faults")

    def set_capacity(self, zone: str, accelerator: str = "*", *, nodes: int | None) -> None:
        """Limit the number of nodes of a zone whose types match a pattern; None removes the limit.

        A new node above the limit ends with a stock-out. A queued resource waits.
        """
        self.send("set_capacity", zone=zone, accelerator=accelerator, nodes=nodes)

    def set_quota(self, quota: str, amount: int | None) -> None:
        """Limit the chips (v5e, v6e) or cores in each zone, for example of `TPUV6EPerProjectPerZoneForTPUAPI`."""
        self.send("set_quota", quota=quota, amount=amount)

    def set_offer(self, zone: str, *accelerators: str) -> None:
        """Offer only accelerator types in a zone that match patterns."""
        self.send("set_offer", zone=zone, accelerators=list(accelerators))

    def set_unreachable(self, *zones: str) -> None:
        """Leave zones out of lists, which report them as unreachable."""
        self.send("set_unreachable", zones=list(zones))

    def set_timings(self, timings: Timings) -> None:
        """Change how long the service takes."""
        self.send("set_timings", timings=dataclasses.asdict(timings))

    def advance(self, seconds: float | None = None) -> None:
        """Move the clock forward, by default to the next event, and wait until the events are over."""
        self.send("advance", seconds=seconds)

    # Nodes and queued resources

    def preempt(self, node: str) -> None:
        """Take the workers of a node away; it becomes PREEMPTED."""
        self.send("preempt", node=node)

    def maintain(self, node: str, seconds: float | None = None) -> None:
        """Let a node be UNHEALTHY_MAINTENANCE without workers, by default without end."""
        self.send("maintain", node=node, seconds=seconds)

    def repair(self, node: str, seconds: float | None = None) -> None:
        """Let a node be REPAIRING without workers, by default without end."""
        self.send("repair", node=node, seconds=seconds)

    def set_health(self, node: str, health: str, description: str = "") -> None:
        """Change the health of a node, for example to `TIMEOUT`."""
        self.send("set_health", node=node, health=health, description=description)

    def set_state(self, node: str, state: str) -> None:
        """Change the state of a node, and nothing else."""
        self.send("set_state", node=node, state=state)

    def fail_queued_resource(self, resource: str, code: str = "INTERNAL", message: str = "an internal error") -> None:
        """Let a queued resource fail."""
        self.send("fail_queued_resource", resource=resource, code=code, message=message)

    def wait_for_state(self, name: str, state: str | None, seconds: float = _WAIT_SECONDS) -> None:
        """Wait until a node or queued resource has a state; None means that it does not exist."""
        self.send("wait_for_state", name=name, state=state, seconds=seconds)

    # Workers

    def lose_worker(self, node: str, worker: int) -> None:
        """Kill a VM with all its processes. The API goes on to describe the node as READY."""
        self.send("lose_worker", node=node, worker=worker)

    def return_worker(self, node: str, worker: int) -> None:
        """Boot a VM that was lost."""
        self.send("return_worker", node=node, worker=worker)

    def break_worker(self, node: str, worker: int) -> None:
        """Let a VM accept connections and never answer."""
        self.send("break_worker", node=node, worker=worker)

    def workers(self, node: str) -> Sequence[Worker]:
        """Return the VMs of a node."""
        found = self.send("workers", node=node)
        return [Worker(**{**one, "directory": Path(one["directory"])}) for one in found]

    # Records

    def nodes(self) -> Sequence[Mapping[str, Any]]:
        """Return all nodes as the REST API describes them."""
        found: Sequence[Mapping[str, Any]] = self.send("nodes")
        return found

    def queued_resources(self) -> Sequence[Mapping[str, Any]]:
        """Return all queued resources as the REST API describes them."""
        found: Sequence[Mapping[str, Any]] = self.send("queued_resources")
        return found

    def leftovers(self) -> Sequence[str]:
        """Return the names of all nodes and queued resources."""
        return [one["name"] for one in (*self.nodes(), *self.queued_resources())]

    def history(self) -> Sequence[NodeRecord]:
        """Return the records of all nodes that have ever existed, in the order of their creation."""
        return [NodeRecord(**one) for one in self.send("history")]

    def created_twice(self) -> Sequence[str]:
        """Return the names of the nodes that were created more than once."""
        counts = Counter(record.name for record in self.history())
        return [name for name, count in counts.items() if count > 1]

    def requests(self, method: str | None = None) -> Sequence[Recorded]:
        """Return all requests, or those of one method."""
        found = [Recorded(**one) for one in self.send("requests")]
        return [one for one in found if method in (None, one.method)]


class Remote(Control):
    """A test server in another process.

    Args:
        directory: the directory of the server, with its socket and its ports.
    """

    def __init__(self, directory: Path) -> None:
        ports = json.loads((directory / PORTS).read_text())
        self.port, self.rest_port, self.ssh_port = ports["port"], ports["rest_port"], ports["ssh_port"]
        self._socket = ports["socket"]

    def send(self, verb: str, **arguments: Any) -> Any:
        """Send a verb over the socket, and return its result."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self._socket)
            with connection.makefile("rwb") as stream:
                stream.write(json.dumps({"verb": verb, "arguments": arguments}).encode() + b"\n")
                stream.flush()
                answer = json.loads(stream.readline())
        if "error" in answer:
            raise ControlError(answer["error"])
        return answer["result"]


def gcloud_environment(server: Control, directory: Path, *, project: str) -> Mapping[str, str]:
    """Return the variables with which `gcloud compute tpus` uses a test server, without any account.

    Args:
        directory: directory for the configuration, so that the one of the user has no effect.
    """
    return {
        "CLOUDSDK_CONFIG": str(directory),
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": server.rest_endpoint,
        "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "1",
        "CLOUDSDK_CORE_PROJECT": project,
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
        "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "1",
        "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "1",
    }
