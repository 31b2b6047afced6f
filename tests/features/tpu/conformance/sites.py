"""The sites of the conformance suites: the test server of the TPU API, with workers for the backend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.conformance.resource_sites import ResourceSite
from tests.conformance.sites import Site
from tests.features.tpu.conformance.tpus import Outage, Tpus
from tests.features.tpu.servers import tpu
from toolbox.features.tpu import api_endpoint
from toolbox.features.tpu.api import TpuApi
from toolbox.features.tpu.backends import tpu_vm
from toolbox.features.tpu.tpu_description import TpuDescription
from toolbox.features.tpu.tpu_request import TpuRequest
from toolbox.features.tpu.tpu_states import Location
from toolbox.ground.model.resources import Owner, Resource


@contextmanager
def _workers(directory: Path) -> Iterator[Site]:
    """Yield a site with one TPU for each run, because creating one for each attempt would take long."""
    with (
        tpu.serving(directory / "server", shared=directory.parent) as server,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("XDG_STATE_HOME", str(directory / "state"))
        outage = Outage(server)
        target = tpu_vm.Target.model_validate(
            {
                "project": "my-project",
                "zone": "us-central1-a",
                "accelerator_type": "v5litepod-8",
                "runtime_version": "v2-alpha-tpuv5-lite",
                "api_endpoint": f"http://127.0.0.1:{outage.api.port}",
                "ssh": {"user": "root", "port": outage.ssh.port},  # root, who may read the directories of the tests
                "reuse": "run",
            }
        )
        site = Tpus("tpu_vm", target, server=outage, refusal="cannot be reached", quick=10.0, cloud=server)
        site.create(directory / "first")
        yield site
        outage.stop()


@contextmanager
def _tpus(directory: Path, fields: Mapping[str, object]) -> Iterator[ResourceSite]:
    with (
        tpu.serving(directory, has_workers=False) as server,
        TpuApi(api_endpoint.parse(server.endpoint)) as api,
    ):
        description = TpuDescription.model_validate(
            {
                "project": "my-project",
                "zone": "us-central1-b",
                "accelerator_type": "v6e-8",
                "runtime_version": "v2-alpha-tpuv6e",
                "api_endpoint": server.endpoint,
                **fields,
            }
        )

        def create(owner: Owner) -> Resource:
            location = Location("my-project", "us-central1-b")
            request = TpuRequest("it", location, description, owner.labels(description.ttl))
            api.create(request)
            server.wait_for_state(request.node_names[0], "READY")
            return request.resource

        kind = "/queuedResources/" if description.is_queued else "/nodes/"
        yield ResourceSite(create, lambda: [name for name in server.leftovers() if kind in name])


BACKENDS: Final = {"tpu_vm": _workers}
RESOURCES: Final = {
    "tpu_node": lambda directory: _tpus(directory, {}),
    "tpu_queued_resource": lambda directory: _tpus(directory, {"slices": 2}),
}


def prepare(patch: pytest.MonkeyPatch) -> None:
    """Shorten the wait for the report that a node is being taken away."""
    patch.setattr(tpu_vm, "_SHUTDOWN_SECONDS", 1.0)
