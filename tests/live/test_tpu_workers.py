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

from tests.servers import openssh, tpu

pytestmark = pytest.mark.live

PARENT = "projects/p/locations/us-central1-a"
Run = Callable[..., str]


@pytest.fixture(name="server")
def _server(tmp_path: Path) -> Iterator[tpu.Server]:
    with tpu.serving(tmp_path / "server") as running:
        yield running


@pytest.fixture(name="make")
def _make(server: tpu.Server, tmp_path: Path) -> Iterator[Callable[..., types.Node]]:
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

    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        client = TpuClient(transport=TpuGrpcTransport(channel=channel))
        yield make


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
    """Say whether an SSH server sends its banner."""
    try:
        with socket.create_connection((server.workers("n")[worker].addresses[-1], server.ssh_port), 0.2) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def await_log(server: tpu.Server, worker: int, text: str) -> str:
    """Return the log of a startup script as soon as it contains a text."""
    deadline = time.monotonic() + 30
    while text not in (log := server.workers("n")[worker].startup_log):
        assert time.monotonic() < deadline, log
        time.sleep(0.005)
    return log


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


def test_a_startup_script_runs_as_root_at_each_boot(
    server: tpu.Server, make: Callable[..., types.Node], run: Run
) -> None:
    make(script="#!/bin/sh\necho $(id -un) on $(hostname)\necho boot >> /var/lib/topgallant/boots\nexit 3\n")
    await_log(server, 0, "exit status 3")
    server.lose_worker("n", 0)
    assert not answers(server, 0)
    server.return_worker("n", 0)
    log = await_log(server, 0, f"root on {server.workers('n')[0].hostname}\nstartup-script exit status 3\nroot on")
    assert log.startswith("root on ")
    assert run(0, "wc -l < /var/lib/topgallant/boots") == "2"


def test_a_lost_worker_takes_its_processes_with_it(
    server: tpu.Server, make: Callable[..., types.Node], run: Run
) -> None:
    make("v5litepod-16")
    run(1, "setsid sleep 4242 >/dev/null 2>&1 & echo started")
    assert any("4242" in process.cmdline() for process in psutil.Process().children(recursive=True))
    server.lose_worker("n", 1)
    assert not any("4242" in process.cmdline() for process in psutil.Process().children(recursive=True))
    assert [answers(server, worker) for worker in range(4)] == [True, False, True, True]


def test_a_broken_worker_accepts_connections_and_never_answers(
    server: tpu.Server, make: Callable[..., types.Node]
) -> None:
    make()
    server.break_worker("n", 0)
    with socket.create_connection((server.workers("n")[0].addresses[-1], server.ssh_port)) as connection:
        connection.settimeout(0.1)
        with pytest.raises(TimeoutError):
            connection.recv(1)


def test_a_worker_that_is_lost_before_its_boot_does_not_boot(tmp_path: Path) -> None:
    with tpu.serving(tmp_path / "frozen", is_frozen=True, timings=tpu.Timings(boot=60)) as server:
        with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            client = TpuClient(transport=TpuGrpcTransport(channel=channel))
            node = types.Node(accelerator_type="v5litepod-16", runtime_version="v2-alpha-tpuv5-lite")
            client.create_node(parent=PARENT, node_id="n", node=node)
        server.advance()
        server.lose_worker("n", 1)
        server.advance(60)
        assert [worker.is_running for worker in server.workers("n")] == [True, False, True, True]


def test_workers_boot_after_a_time(tmp_path: Path) -> None:
    with tpu.serving(tmp_path / "frozen", is_frozen=True, timings=tpu.Timings(boot=60)) as server:
        with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            client = TpuClient(transport=TpuGrpcTransport(channel=channel))
            node = types.Node(accelerator_type="v5litepod-8", runtime_version="v2-alpha-tpuv5-lite")
            client.create_node(parent=PARENT, node_id="n", node=node)
        server.advance()
        server.wait_for_state("n", "READY")
        assert not answers(server, 0)
        server.advance(60)
        assert answers(server, 0)


def test_the_host_keys_are_guest_attributes(server: tpu.Server, make: Callable[..., types.Node]) -> None:
    make("v5litepod-16")
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        client = TpuClient(transport=TpuGrpcTransport(channel=channel))
        request = types.GetGuestAttributesRequest(name=f"{PARENT}/nodes/n", query_path="hostkeys/")
        found = client.get_guest_attributes(request).guest_attributes
    published = [entry.value for one in found for entry in one.query_value.items]
    address = server.workers("n")[2].addresses[-1]
    scan = ["ssh-keyscan", "-t", "ed25519", "-p", str(server.ssh_port), address]
    assert published[2] in subprocess.run(scan, capture_output=True, text=True, check=True).stdout
    assert len(set(published)) == 4


def test_no_process_survives_a_deleted_node(server: tpu.Server, make: Callable[..., types.Node]) -> None:
    before = set(psutil.Process().children(recursive=True))
    node = make("v5litepod-16")
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        TpuClient(transport=TpuGrpcTransport(channel=channel)).delete_node(name=node.name)
    server.wait_for_state("n", None)
    assert set(psutil.Process().children(recursive=True)) <= before
    assert not list(server.directory.glob("t1v-*"))
