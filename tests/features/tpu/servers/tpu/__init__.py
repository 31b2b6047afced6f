"""A test server of the Cloud TPU API, with real machines behind it. It replaces only Google's side.

Its clients are the real library google-cloud-tpu over gRPC, the real `gcloud compute tpus` over REST, and the real
`ssh`. Google publishes no emulator of this API.

    with tpu.serving(directory) as server:
        ...  # api_endpoint: server.endpoint, ssh.port: server.ssh_port
        server.preempt("node")
        assert not server.leftovers()

What is modelled
- gRPC: all methods of `google.cloud.tpu.v2.Tpu`, and the methods of `google.longrunning.Operations` that Google's
  service has, over the messages of the client library. REST: the same methods and state, under `/v2/` and `/v2alpha1/`,
  with the routes that the client library knows.
- Nodes: the states CREATING, READY, STOPPING, STOPPED, STARTING, REPAIRING, PREEMPTED and DELETING with their health.
  Operations with their metadata, which can be slow or fail. Lists with pages, of one zone or of all zones, some of
  which can be unreachable.
- Queued resources: see `queued_resources.py`. Several slices get capacity together or not at all. Nodes name their
  queued resource with the number of the project, as in the examples of the documentation.
- Accelerator types with topology and number of VMs, zones and runtime versions: see `catalog.py`.
- Refusals, with Google's codes, details and, where public reports show it, wording: see `refusals.py`. Rules for ids,
  labels and metadata: see `validation.py`. Capacity of zones and quotas: see `cloud.py`.
- Faults: an error before or after the effect of a call, an effect that comes late, a call that hangs, an operation that
  fails or is slow.
- Workers: see `machines.py`. Preemption, maintenance and repair kill them; a single worker can be lost or fall silent.
- Time: states change after milliseconds, or only when a test moves the clock.

What is not modelled
- Credentials, IAM and TLS: every client may do everything. A `Fault` gives errors such as UNAUTHENTICATED.
- TPU chips and their runtime, the metadata server of VMs, OS Login, networks, firewalls and attached disks: their
  fields are stored and returned. VMs share the file system of this machine, except for the directories that
  `machines.py` names.
- `sudo` for the accounts of VMs.
- `gcloud compute tpus tpu-vm ssh`, which also needs the Compute Engine API. Methods that only v2alpha1 has. The service
  `google.cloud.location.Locations`. Lists and creations by the number of the project.
- The durations of Google's service, and the order in which it serves its queue: the oldest request comes first here.
- Undocumented behaviour. These are assumptions: the wording of errors that no public report shows; that a reset
  makes all nodes again; that the loss of one slice suspends the whole queued resource, as the documentation of the
  state SUSPENDING suggests; that a preempted node which no queued resource owns stays PREEMPTED until its deletion;
  that the field `name` keeps the form of the request that created the resource.

References: https://cloud.google.com/tpu/docs/reference/rpc/google.cloud.tpu.v2,
https://cloud.google.com/tpu/docs/reference/rest, https://cloud.google.com/tpu/docs/queued-resources,
https://cloud.google.com/tpu/docs/managing-tpus-tpu-vm, https://cloud.google.com/tpu/docs/preemptible.
"""

from __future__ import annotations

from tests.features.tpu.servers.tpu.cloud import Timings
from tests.features.tpu.servers.tpu.faults import Fault
from tests.features.tpu.servers.tpu.tpu_server import Server, Worker, gcloud_environment, serving

__all__ = ["Fault", "Server", "Timings", "Worker", "gcloud_environment", "serving"]
