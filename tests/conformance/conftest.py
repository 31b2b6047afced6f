"""Fixtures for the tests of all backends that the library discovers, with real targets on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.conformance import feature_sites
from tests.conformance.sites import Bench, Orchestrator, Site
from tests.servers import openssh
from toolbox.ground.extensions import discovery, loading, protocols
from toolbox.targets.attempt_book import AttemptBook
from toolbox.targets.backends import local, ssh

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


SITES: Final[dict[str, Callable[[Path], AbstractContextManager[Site]]]] = {
    "local": _local,
    "ssh": _ssh,
    **feature_sites.of("BACKENDS"),
}


@pytest.fixture(autouse=True)
def _prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the message about a wait, so that an attempt that starts late causes no notification."""
    monkeypatch.setattr(AttemptBook, "show_waiting", lambda *_: None)
    feature_sites.prepare(monkeypatch)


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
