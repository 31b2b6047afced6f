"""A test server of the Cloud TPU API, with real machines behind it.

Only Google's side is replaced: clients are the real library google-cloud-tpu, over gRPC, and the real `gcloud`, over
REST; the workers are real SSH servers (see `workers.py`).

    with tpu.serving(directory) as server:  # the test is skipped if this machine cannot run workers
        ...  # api_endpoint: server.endpoint; ssh.port: server.ssh_port
        server.preempt("node")
        assert not server.leftovers()

References: https://cloud.google.com/tpu/docs/reference/rpc/google.cloud.tpu.v2,
https://cloud.google.com/tpu/docs/reference/rest, https://cloud.google.com/tpu/docs/queued-resources.
"""

from __future__ import annotations

from tests.servers.tpu.cloud import NodeRecord, Timings
from tests.servers.tpu.control import Control, Remote, Worker
from tests.servers.tpu.faults import Fault
from tests.servers.tpu.gcloud import gcloud_environment
from tests.servers.tpu.process import serving_process
from tests.servers.tpu.server import Server, serving

__all__ = [
    "Control",
    "Fault",
    "NodeRecord",
    "Remote",
    "Server",
    "Timings",
    "Worker",
    "gcloud_environment",
    "serving",
    "serving_process",
]
