"""The test server of the TPU API as a separate process. When the process is killed, no worker remains."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import grpc
import psutil
import pytest
from google.cloud.tpu_v2 import TpuClient, types
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport

from tests.features.tpu.servers import tpu

pytestmark = pytest.mark.live

PARENT = "projects/p/locations/us-central1-a"
NODE = types.Node(accelerator_type="v5litepod-16", runtime_version="v2-alpha-tpuv5-lite")
ROOT = Path(__file__).parents[4]


def test_no_process_survives_a_server_that_is_killed(tmp_path: Path) -> None:
    with tpu.serving(tmp_path / "probe"):
        pass  # the test is skipped where workers cannot run
    directory = tmp_path / "server"
    command = [sys.executable, "-m", "tests.features.tpu.servers.tpu", f"--directory={directory}"]
    server = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdin is not None
    assert server.stdout is not None
    with server.stdin, server.stdout:
        assert server.stdout.readline() == b"ready\n"
        ports = json.loads((directory / "ports.json").read_text())
        with grpc.insecure_channel(f"127.0.0.1:{ports['port']}") as channel:
            client = TpuClient(transport=TpuGrpcTransport(channel=channel))
            assert client.create_node(parent=PARENT, node_id="n", node=NODE).result().state == types.Node.State.READY
        family = psutil.Process(server.pid).children(recursive=True)
        assert sum("-w-" in " ".join(process.cmdline()) for process in family) == 4
        server.kill()
        server.wait()
        _, alive = psutil.wait_procs(family, 30)
    assert not alive


def test_a_server_ends_with_its_standard_input(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.features.tpu.servers.tpu", f"--directory={tmp_path}", "--no-workers"]
    ended = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    assert ended.stdout == "ready\n"
