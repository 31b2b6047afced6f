"""Fixtures for the tests of all backends that the library discovers, with real targets on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.conformance.hubs import HubSite
from tests.conformance.pods import Pods
from tests.conformance.sites import Bench, Orchestrator, Site
from tests.conformance.tpus import Outage, Tpus
from tests.servers import api_proxy, jupyterhub, kubernetes, openssh, tpu
from toolbox.backends import jupyterhub as jupyterhub_backend
from toolbox.backends import kubernetes as kubernetes_backend
from toolbox.backends import local, ssh, tpu_vm
from toolbox.extensions import discovery, loading, protocols
from toolbox.hosts.attempt_book import AttemptBook

BACKENDS: Final = sorted(discovery.available("backends"))


@contextmanager
def _local(directory: Path) -> Iterator[Site]:  # noqa: ARG001  # `local` needs no directory
    yield Site("local", local.Target())


@contextmanager
def _ssh(directory: Path) -> Iterator[Site]:
    with openssh.serving(directory) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", server.environment()["PATH"])
        target = ssh.Target(host=openssh.ADDRESS, port=server.port)
        refusal = f"cannot be reached for 5 s: ssh: connect to host {openssh.ADDRESS}"
        yield Site("ssh", target, directory / ".cache/topgallant/attempts", server, refusal, quick=5.0)


@contextmanager
def _kubernetes(directory: Path) -> Iterator[Site]:
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
            proxy=proxy,
            cluster=cluster,
            namespace=namespace,
        )


@contextmanager
def _tpu_vm(directory: Path) -> Iterator[Site]:
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
def _jupyterhub(directory: Path) -> Iterator[Site]:  # noqa: ARG001  # the hub has a directory of its own
    """Yield a site whose servers start in a moment. The workloads run on this machine, and use no server."""
    with jupyterhub.serving() as hub:
        target = jupyterhub_backend.Target.model_validate({"url": hub.url, "token": hub.token, "profile": "bare"})
        yield HubSite("jupyterhub", target, quick=20.0, hub=hub)


SITES: Final[dict[str, Callable[[Path], AbstractContextManager[Site]]]] = {
    "local": _local,
    "ssh": _ssh,
    "kubernetes": _kubernetes,
    "tpu_vm": _tpu_vm,
    "jupyterhub": _jupyterhub,
}


@pytest.fixture(autouse=True)
def _no_news_of_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the message about a wait, so that a pod or a TPU that starts late causes no notification."""
    monkeypatch.setattr(AttemptBook, "show_waiting", lambda *_: None)
    monkeypatch.setattr(tpu_vm, "_SHUTDOWN_SECONDS", 1.0)


@pytest.fixture(scope="module", params=BACKENDS)
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Yield a site of each backend. A backend whose target has required fields needs an entry in `SITES`."""
    if request.param in SITES:
        with SITES[request.param](tmp_path_factory.mktemp(request.param)) as found:
            yield found
        return
    kind = loading.load(protocols.BACKENDS, request.param)
    if required := [name for name, field in kind.model_fields.items() if field.is_required()]:
        assert request.param not in discovery.builtin("backends"), f"SITES has no entry for {request.param}"
        pytest.skip(f"a target of the backend {request.param} needs {', '.join(required)}")
    yield Site(request.param, kind())


@pytest.fixture(scope="module")
def shared(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orchestrator]:
    """Yield an orchestrator whose connection several tests share, as the cells of a run do."""
    found = Orchestrator(site, tmp_path_factory.mktemp("shared"))
    yield found
    found.backend.close()


@pytest.fixture
def bench(shared: Orchestrator, tmp_path: Path) -> Iterator[Bench]:
    """Yield a bench, and end all its attempts after the test."""
    found = Bench(shared, tmp_path)
    yield found
    found.close()
