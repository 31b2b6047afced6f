"""Cells on TPUs of the test server, for the live tests of the backend `tpu_vm`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tests.conformance.sites import RUN, Attempt, Bench, Orchestrator, Site, wait_for
from tests.fakes.ledger import MemoryLedger
from tests.features.tpu.servers import tpu
from toolbox.features.tpu.backends.tpu_vm import Target
from toolbox.ground.model.workloads import AttemptState

ZONE: Final = "us-central1-a"
OTHER_ZONE: Final = "us-west4-a"
PLAIN: Final[dict[str, Any]] = {
    "project": "my-project",
    "zone": ZONE,
    "accelerator_type": "v5litepod-8",
    "runtime_version": "v2-alpha-tpuv5-lite",
}
QUEUED: Final = {**PLAIN, "spot": True}
FOUR_WORKERS: Final = {**PLAIN, "accelerator_type": "v5litepod-16"}


def target_of(server: tpu.Server, **fields: Any) -> dict[str, Any]:
    """Return the configuration of a target on the test server."""
    ssh = {"port": server.ssh_port}
    return {**PLAIN, "api_endpoint": server.endpoint, "ssh": ssh, **fields}


class Cells(Bench):
    """Runs the workloads of a test on TPUs."""

    def __init__(self, server: tpu.Server, directory: Path, **fields: Any) -> None:
        site = Site("tpu_vm", Target.model_validate(target_of(server, **fields)))
        super().__init__(Orchestrator(site, directory / "orchestrator"), directory)
        self.server = server

    @property
    def ledger(self) -> MemoryLedger:
        """The ledger of the run."""
        return self.site.ledger(RUN)

    def node(self) -> str:
        """Return the name of the only node, when it is READY."""
        wait_for(lambda: [node for node in self.server.nodes() if node["state"] == "READY"], "a node")
        (node,) = self.server.nodes()
        return str(node["name"])

    def begin(self, *command: str, **fields: Any) -> Attempt:
        """Start a workload that prints `up` first, and wait until it runs."""
        attempt = self.start("sh", "-c", "echo up; " + " ".join(command or ("sleep 600",)), **fields)
        attempt.printed("up\n")
        wait_for(lambda: attempt.by.status(attempt.handle).state is AttemptState.RUNNING, "the state RUNNING")
        return attempt

    def waits(self, attempt: Attempt, text: str) -> None:
        """Wait until the status of an attempt says why it waits."""
        wait_for(lambda: text in attempt.by.status(attempt.handle).message, f"a message with {text!r}")

    def release(self, attempt: Attempt) -> None:
        """Release an attempt, and check that no TPU is left."""
        attempt.by.backend.release(attempt.handle)
        assert self.server.leftovers() == []
        assert self.ledger.open_resources() == []
