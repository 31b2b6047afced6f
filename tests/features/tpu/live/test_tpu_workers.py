"""The workers of the test server of the TPU API: real SSH servers."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import psutil
import pytest
from google.cloud.tpu_v2 import TpuClient, types
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport
from google.protobuf.field_mask_pb2 import FieldMask

from tests.features.tpu.servers import tpu
from tests.servers import openssh

pytestmark = pytest.mark.live

PARENT = "projects/p/locations/us-central1-a"
Run = Callable[..., str]


def client_of(server: tpu.Server) -> TpuClient:
    """Return a client of the API."""
    return TpuClient(transport=TpuGrpcTransport(channel=grpc.insecure_channel(f"127.0.0.1:{server.port}")))


@pytest.fixture(name="server")
def _server(tmp_path: Path) -> Iterator[tpu.Server]:
    with tpu.serving(tmp_path / "server") as running:
        yield running


@pytest.fixture(name="client")
def _client(server: tpu.Server) -> Iterator[TpuClient]:
    with client_of(server) as client:
        yield client


@pytest.fixture(name="make")
def _make(server: tpu.Server, client: TpuClient, tmp_path: Path) -> Callable[..., types.Node]:
    """Return a function that creates the node `n`, and returns it when it is ready."""
    key = openssh.make_key(tmp_path / "key")

    def make(accelerator: str = "v5litepod-8", *, keys: str = f"runner:{key}", script: str = "") -> types.Node:
        node = types.Node(
            accelerator_type=accelerator,
            runtime_version="v2-alpha-tpuv5-lite",
            network_config={"enable_external_ips": True},
            metadata={"ssh-keys": keys, "startup-script": script},
        )
        client.create_node(parent=PARENT, node_id="n", node=node)
        server.wait_for_state("n", "READY")
        return client.get_node(name=f"{PARENT}/nodes/n")

    return make


@pytest.fixture(name="run")
def _run(server: tpu.Server, tmp_path: Path) -> Run:
    """Return a function that runs a command on a worker of the node `n`, and returns its output."""

    def run(worker: int, command: str, *, user: str = "runner") -> str:
        options = ["-F", "/dev/null", "-i", str(tmp_path / "key"), "-o", "StrictHostKeyChecking=no"]
        options += ["-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "-p", str(server.ssh_port)]
        address = server.workers("n")[worker].addresses[-1]
        done = subprocess.run(
            ["ssh", *options, f"{user}@{address}", command], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


def answers(server: tpu.Server, worker: int) -> bool:
    """Return whether an SSH server sends its banner."""
    try:
        with socket.create_connection((server.workers("n")[worker].addresses[-1], server.ssh_port), 0.2) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until a condition is true."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def startup_log(server: tpu.Server, text: str) -> str:
    """Return the log of the startup script as soon as it contains a text."""
    wait_until(lambda: text in server.workers("n")[0].startup_log)
    return server.workers("n")[0].startup_log


def is_sleeping() -> bool:
    """Return whether the program that a test has started on a worker is running."""
    found = psutil.process_iter(["cmdline"])  # without an error for a process that ends meanwhile
    return any(one.info["cmdline"] == ["sleep", "4242"] for one in found)


def test_every_worker_is_a_machine_of_its_own(server: tpu.Server, make: Callable[..., types.Node], run: Run) -> None:
    node = make("v5litepod-16")
    external = [endpoint.access_config.external_ip for endpoint in node.network_endpoints]
    assert external == [worker.addresses[-1] for worker in server.workers("n")]
    for worker in range(4):
        run(worker, "echo $(hostname) > ~/file; echo x > /tmp/file; touch /var/lib/topgallant/file || true")
    names = [run(worker, "cat ~/file") for worker in range(4)]
    assert names == [worker.hostname for worker in server.workers("n")]
    assert [name.rpartition("-w-")[2] for name in names] == ["0", "1", "2", "3"]
    assert not Path("/tmp/file").exists()


def test_an_account_has_its_key_and_home(make: Callable[..., types.Node], run: Run) -> None:
    make()
    assert run(0, "id -un; pwd; stat -c %U ~").split() == ["runner", "/home/runner", "runner"]


def test_root_can_have_a_key(make: Callable[..., types.Node], run: Run, tmp_path: Path) -> None:
    make(keys=f"root:{(tmp_path / 'key.pub').read_text()}")
    assert run(0, "id -u", user="root") == "0"


def test_a_node_boots_after_a_maintenance_with_its_disk_and_startup_script(
    server: tpu.Server, make: Callable[..., types.Node], run: Run
) -> None:
    make(script="#!/bin/sh\necho $(id -un) on $(hostname)\nexit 3\n")
    startup_log(server, "exit status 3")
    run(0, "touch ~/file /tmp/file")
    server.maintain("n", seconds=0)
    boot = f"root on {server.workers('n')[0].hostname}\nstartup-script exit status 3\n"
    assert startup_log(server, 2 * boot) == 2 * boot
    assert run(0, "ls ~ /tmp").split() == ["/home/runner:", "file", "/tmp:", "startup-script"]


def test_a_lost_worker_takes_its_processes_with_it(
    server: tpu.Server, make: Callable[..., types.Node], run: Run
) -> None:
    make("v5litepod-16")
    run(1, "setsid sleep 4242 >/dev/null 2>&1 & echo started")
    wait_until(is_sleeping)
    server.lose_worker("n", 1)
    assert not is_sleeping()
    assert [answers(server, worker) for worker in range(4)] == [True, False, True, True]


def test_new_metadata_reach_a_worker_that_runs(
    client: TpuClient, make: Callable[..., types.Node], run: Run, tmp_path: Path
) -> None:
    node = make(keys="")
    node.metadata["ssh-keys"] = f"late:{(tmp_path / 'key.pub').read_text()}"
    client.update_node(node=node, update_mask=FieldMask(paths=["metadata"])).result()
    assert run(0, "id -un", user="late") == "late"


def test_workers_can_share_a_directory_with_the_tests(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    script = f"#!/bin/sh\nhostname > {tmp_path}/shared/file\n"
    node = types.Node(accelerator_type="v6e-8", runtime_version="v2-alpha-tpuv6e", metadata={"startup-script": script})
    with tpu.serving(tmp_path / "server", shared=tmp_path / "shared") as server:
        with client_of(server) as client:
            client.create_node(parent=PARENT, node_id="n", node=node)
        server.wait_for_state("n", "READY")
        startup_log(server, "exit status 0")
        assert (tmp_path / "shared" / "file").read_text().strip() == server.workers("n")[0].hostname


def test_a_broken_worker_accepts_connections_and_never_answers(
    server: tpu.Server, make: Callable[..., types.Node]
) -> None:
    make()
    server.break_worker("n", 0)
    with socket.create_connection((server.workers("n")[0].addresses[-1], server.ssh_port)) as connection:
        connection.settimeout(0.1)
        with pytest.raises(TimeoutError):
            connection.recv(1)


def test_workers_boot_after_a_delay_unless_they_are_lost_before(tmp_path: Path) -> None:
    with tpu.serving(tmp_path / "frozen", is_frozen=True, timings=tpu.Timings(boot=60)) as server:
        node = types.Node(accelerator_type="v5litepod-16", runtime_version="v2-alpha-tpuv5-lite")
        with client_of(server) as client:
            client.create_node(parent=PARENT, node_id="n", node=node)
        server.advance()
        server.wait_for_state("n", "READY")
        server.lose_worker("n", 1)
        assert not answers(server, 0)
        server.advance(60)
        assert [answers(server, worker) for worker in range(4)] == [True, False, True, True]


def test_the_host_keys_are_guest_attributes(
    server: tpu.Server, client: TpuClient, make: Callable[..., types.Node]
) -> None:
    make("v5litepod-16")
    request = types.GetGuestAttributesRequest(name=f"{PARENT}/nodes/n", query_path="hostkeys/")
    found = client.get_guest_attributes(request).guest_attributes
    published = [entry.value for one in found for entry in one.query_value.items]
    address = server.workers("n")[2].addresses[-1]
    scan = ["ssh-keyscan", "-t", "ed25519", "-p", str(server.ssh_port), address]
    assert published[2] in subprocess.run(scan, capture_output=True, text=True, check=True).stdout
    assert len(set(published)) == 4


def test_no_process_survives_a_deleted_node(
    server: tpu.Server, client: TpuClient, make: Callable[..., types.Node]
) -> None:
    before = set(psutil.Process().children(recursive=True))
    client.delete_node(name=make("v5litepod-16").name)
    server.wait_for_state("n", None)
    assert set(psutil.Process().children(recursive=True)) <= before
    assert not list(server.directory.glob("t1v-*"))
