"""The sites of the conformance suites: a real cluster for the backend, and fake servers for the remote resources."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from tests.conformance.resource_sites import ResourceSite
from tests.conformance.sites import Site
from tests.features.kubernetes.conformance.pods import Pods
from tests.features.kubernetes.fakes import api_server
from tests.features.kubernetes.fakes.stored_objects import StoredObjects
from tests.features.kubernetes.servers import api_proxy, kubernetes
from toolbox.features.kubernetes import owned_objects
from toolbox.features.kubernetes.api.connection import Cluster
from toolbox.features.kubernetes.api.objects import CONFIG_MAP, NAMESPACE, Kind
from toolbox.features.kubernetes.backends import kubernetes as kubernetes_backend
from toolbox.ground.model.clusters import Access
from toolbox.ground.model.resources import Owner, Resource


@contextmanager
def _pods(directory: Path) -> Iterator[Site]:
    with (
        kubernetes.for_tests() as cluster,
        cluster.namespace() as namespace,
        api_proxy.Proxy(cluster.kubeconfig, directory) as proxy,
    ):
        pod = cluster.pod_python(
            directory.parent
        )  # and the directories of the tests, whose files control the workloads
        target = kubernetes_backend.Target(kubeconfig=str(proxy.kubeconfig), namespace=namespace, pod=pod)
        yield Pods(
            "kubernetes",
            target,
            server=proxy,
            refusal="Connection refused",
            quick=10.0,
            takes_only_utf8=True,
            forwards_whole_lines=True,
            starts_later=True,
            proxy=proxy,
            cluster=cluster,
            namespace=namespace,
        )


@contextmanager
def _objects(directory: Path, kind: Kind) -> Iterator[ResourceSite]:
    with (
        api_server.serving(directory) as server,
        closing(Cluster(Access(str(server.kubeconfig)))) as cluster,
    ):
        path = kind.path(api_server.NAMESPACE)
        stored = StoredObjects(server, path)

        def create(owner: Owner) -> Resource:
            stored.put(path, "it", labels=owned_objects.labels(owner, owned_objects.TTL))
            return owned_objects.resource(cluster, kind, "it")

        yield ResourceSite(create, lambda: list(stored.objects))


BACKENDS: Final = {"kubernetes": _pods}
RESOURCES: Final = {
    "kubernetes_namespace": lambda directory: _objects(directory, NAMESPACE),
    "kubernetes_owner": lambda directory: _objects(directory, CONFIG_MAP),
}
