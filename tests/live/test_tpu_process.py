"""The test server of the TPU API as a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import grpc
import psutil
import pytest
from google.cloud.tpu_v2 import TpuClient, types
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport

from tests.servers import tpu
from tests.servers.tpu.control import ControlError

pytestmark = pytest.mark.live

PARENT = "projects/p/locations/us-central1-a"
NODE = types.Node(accelerator_type="v5litepod-16", runtime_version="v2-alpha-tpuv5-lite")
ROOT = Path(__file__).parents[2]
# A process of a test: it runs the server, creates a node with workers, and waits to be killed.
OWNER = """
import sys
from pathlib import Path

sys.path[:0] = [{root!r}]
from tests.servers import tpu
from tests.live.test_tpu_process import create

directory = Path({directory!r})
with {how}(directory) as server:
    create(server)
    print("ready", flush=True)
    sys.stdin.read()
"""


def create(server: tpu.Control) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        client = TpuClient(transport=TpuGrpcTransport(channel=channel))
        client.create_node(parent=PARENT, node_id="n", node=NODE)
    server.wait_for_state("n", "READY")


def test_a_server_in_another_process_has_the_same_control(tmp_path: Path) -> None:
    with tpu.serving_process(tmp_path, has_workers=False) as server:
        server.add_fault(tpu.Fault("GetNode", "UNAVAILABLE"))
        create(server)
        server.preempt("n")
        (record,) = server.history()
        assert record.states == ["CREATING", "READY", "PREEMPTED"]
        assert [one.method for one in server.requests()] == ["CreateNode"]
        with pytest.raises(ControlError, match="there is no node other"):
            server.preempt("other")


@pytest.mark.parametrize("how", ["tpu.Server", "tpu.serving_process"])
def test_no_process_survives_a_test_that_is_killed(tmp_path: Path, how: str) -> None:
    with tpu.serving(tmp_path / "probe"):
        pass  # the test is skipped where workers cannot run
    program = OWNER.format(root=str(ROOT), directory=str(tmp_path / "server"), how=how)
    owner = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert owner.stdin is not None
    assert owner.stdout is not None
    with owner.stdin, owner.stdout:
        assert owner.stdout.readline() == b"ready\n"
        family = psutil.Process(owner.pid).children(recursive=True)
        assert sum("-w-" in " ".join(process.cmdline()) for process in family) == 4
        owner.kill()
        owner.wait()
        _, alive = psutil.wait_procs(family, 30)
    assert not alive
