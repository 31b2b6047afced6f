"""The real `gcloud compute tpus` with the test server of the TPU API."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator

import grpc
import pytest
from google.cloud.tpu_v2 import TpuClient, types
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport

from tests.features.tpu.servers import tpu

pytestmark = pytest.mark.live

PARENT = "projects/p/locations/us-central1-a"
NODE = types.Node(accelerator_type="v5litepod-16", runtime_version="v2-alpha-tpuv5-lite", labels={"team": "a"})
Gcloud = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(name="server", scope="module")
def _server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tpu.Server]:
    with tpu.serving(tmp_path_factory.mktemp("tpu"), has_workers=False) as running:
        yield running


@pytest.fixture(name="client", scope="module")
def _client(server: tpu.Server) -> Iterator[TpuClient]:
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield TpuClient(transport=TpuGrpcTransport(channel=channel))


@pytest.fixture(name="gcloud", scope="module")
def _gcloud(server: tpu.Server, tmp_path_factory: pytest.TempPathFactory) -> Gcloud:
    """Return a function that runs `gcloud compute tpus` in the zone of the tests."""
    program = shutil.which("gcloud")
    if program is None:
        pytest.skip("gcloud is not installed: install the Google Cloud SDK")
    environment = {**os.environ, **tpu.gcloud_environment(server, tmp_path_factory.mktemp("gcloud"), project="p")}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [program, "compute", "tpus", *arguments, "--zone=us-central1-a", "--format=json", "--quiet"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    return run


def test_gcloud_lists_describes_and_deletes_nodes(server: tpu.Server, client: TpuClient, gcloud: Gcloud) -> None:
    client.create_node(parent=PARENT, node_id="n", node=NODE)
    server.wait_for_state("n", "READY")
    (listed,) = json.loads(gcloud("tpu-vm", "list").stdout)
    assert (listed["name"], listed["labels"]) == (f"{PARENT}/nodes/n", {"team": "a"})
    described = json.loads(gcloud("tpu-vm", "describe", "n").stdout)
    assert (described["state"], len(described["networkEndpoints"])) == ("READY", 4)
    assert gcloud("tpu-vm", "delete", "n").returncode == 0
    assert not server.leftovers()
    again = gcloud("tpu-vm", "delete", "n")
    assert (again.returncode, "NOT_FOUND" in again.stderr) == (1, True)


def test_gcloud_lists_describes_and_deletes_queued_resources(
    server: tpu.Server, client: TpuClient, gcloud: Gcloud
) -> None:
    spec = {"parent": PARENT, "multislice_params": {"node_count": 2}, "node": NODE}
    wanted = types.QueuedResource(tpu={"node_spec": [spec]}, spot={})
    client.create_queued_resource(parent=PARENT, queued_resource_id="q", queued_resource=wanted)
    server.wait_for_state("q", "ACTIVE")
    (listed,) = json.loads(gcloud("queued-resources", "list").stdout)
    assert listed["state"]["state"] == "ACTIVE"
    described = json.loads(gcloud("queued-resources", "describe", "q").stdout)
    assert described["tpu"]["nodeSpec"][0]["multisliceParams"] == {"nodeCount": 2}
    refused = gcloud("queued-resources", "delete", "q")
    assert (refused.returncode, "FAILED_PRECONDITION" in refused.stderr) == (1, True)
    assert gcloud("queued-resources", "delete", "q", "--force").returncode == 0
    assert not server.leftovers()


def test_gcloud_creates_what_the_client_library_finds(server: tpu.Server, client: TpuClient, gcloud: Gcloud) -> None:
    flags = ["--accelerator-type=v6e-8", "--version=v2-alpha-tpuv6e", "--labels=team=b", "--metadata=a=b", "--spot"]
    assert gcloud("tpu-vm", "create", "made", *flags).returncode == 0
    (node,) = client.list_nodes(parent=PARENT)
    assert (dict(node.labels), dict(node.metadata), node.scheduling_config.spot) == ({"team": "b"}, {"a": "b"}, True)
    assert gcloud("tpu-vm", "update", "made", "--update-labels=more=c").returncode == 0
    assert client.get_node(name=node.name).labels["more"] == "c"
    gcloud("tpu-vm", "delete", "made")
    assert not server.leftovers()


def test_gcloud_shows_why_a_creation_fails(server: tpu.Server, gcloud: Gcloud) -> None:
    server.set_capacity("us-central1-a", nodes=0)
    failed = gcloud("tpu-vm", "create", "made", "--accelerator-type=v6e-8", "--version=v2-alpha-tpuv6e")
    assert "There is no more capacity in the zone" in failed.stderr
    server.set_capacity("us-central1-a", nodes=None)
    assert not server.leftovers()


def test_gcloud_lists_what_a_zone_offers(server: tpu.Server, gcloud: Gcloud) -> None:
    server.set_offer("us-central1-a", "v6e-*")
    found = json.loads(gcloud("tpu-vm", "accelerator-types", "list").stdout)
    assert {one["type"].partition("-")[0] for one in found} == {"v6e"}
    versions = json.loads(gcloud("tpu-vm", "versions", "list").stdout)
    assert "v2-alpha-tpuv6e" in [one["version"] for one in versions]
