"""The sites of the conformance suites: a real JupyterHub, whose servers start in a moment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.conformance.resource_sites import ResourceSite
from tests.conformance.sent_packages import SentPackage
from tests.conformance.sites import Site
from tests.features.notebooks.conformance.hubs import HubSite
from tests.features.notebooks.servers import jupyterhub
from toolbox.features.notebooks import worker as notebook_worker
from toolbox.features.notebooks.backends import jupyterhub as jupyterhub_backend
from toolbox.features.notebooks.jupyterhub import hub_tokens, server_request
from toolbox.features.notebooks.jupyterhub.hub_replies import LABELS
from toolbox.ground.model.resources import Owner, Resource


@contextmanager
def _hub(directory: Path) -> Iterator[Site]:  # noqa: ARG001  # the hub has a directory of its own
    """Yield a site whose servers start in a moment. The workloads run on this machine, and use no server."""
    with jupyterhub.serving() as hub:
        target = jupyterhub_backend.Target.model_validate({"url": hub.url, "token": hub.token, "profile": "bare"})
        yield HubSite("jupyterhub", target, quick=20.0, starts_later=True, hub=hub)


@contextmanager
def _servers(directory: Path) -> Iterator[ResourceSite]:  # noqa: ARG001  # the hub has a directory of its own
    with jupyterhub.serving() as hub, pytest.MonkeyPatch.context() as patch:
        patch.setenv(hub_tokens.VARIABLE, hub.token)

        def create(owner: Owner) -> Resource:
            hub.start_server("it", profile="bare", **{LABELS: owner.labels(60)})
            return server_request.ledger_entry(hub.url, hub.user, "it", None, 60)

        yield ResourceSite(create, lambda: list(hub.servers()))


_LIBRARIES: Final = ("jupyter_client", "jupyter_core", "nbclient", "nbformat", "papermill", "pynvml", "tornado", "zmq")
_OF_RUNTIMES: Final = ("python_check_harness.py", "server_programs.py", "use_sampler.py")
BACKENDS: Final = {"jupyterhub": _hub}
RESOURCES: Final = {"jupyterhub_server": _servers}
SENT_PACKAGES: Final = {
    "notebook_worker": SentPackage(
        notebook_worker, (3, 10), frozenset(_LIBRARIES), is_program=True, older_modules=frozenset(_OF_RUNTIMES)
    )
}
