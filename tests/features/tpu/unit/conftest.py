"""Fixtures for tests of the gateway to the TPU API: a real server without workers, whose clock a test moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.ledger import MemoryLedger
from tests.features.tpu.servers import tpu
from toolbox.features.tpu import api_endpoint
from toolbox.features.tpu.api import TpuApi
from toolbox.features.tpu.tpu_description import TpuDescription
from toolbox.features.tpu.tpu_request import TpuRequest
from toolbox.features.tpu.tpu_states import Location
from toolbox.ground.model.resources import Owner

PROJECT = "my-project"
ZONE = "us-central1-b"
OTHER_ZONE = "us-east5-b"
PLACE = Location(PROJECT, ZONE)

Request = Callable[..., TpuRequest]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tpu.Server]:
    """Yield a server on which time stands still, except for `advance`."""
    with tpu.serving(tmp_path / "server", has_workers=False, is_frozen=True) as running:
        yield running


@pytest.fixture
def api(server: tpu.Server) -> Iterator[TpuApi]:
    """Yield a connection that repeats requests for at most a second."""
    with TpuApi(api_endpoint.parse(server.endpoint), timeout=1.0, try_seconds=0.5) as connection:
        yield connection


@pytest.fixture
def ledger() -> MemoryLedger:
    """Return the ledger of a run."""
    return MemoryLedger()


@pytest.fixture
def owner(ledger: MemoryLedger) -> Owner:
    """Return the owner of the ledger."""
    return ledger.owner


@pytest.fixture
def request_for(server: tpu.Server, owner: Owner) -> Request:
    """Return a function that makes a request with these fields of a description."""

    def make(name: str = "tpu", *, owner: Owner = owner, **fields: Any) -> TpuRequest:
        description = TpuDescription.model_validate(
            {
                "project": PROJECT,
                "zone": ZONE,
                "accelerator_type": "v6e-8",
                "runtime_version": "v2-alpha-tpuv6e",
                "api_endpoint": server.endpoint,
                **fields,
            }
        )
        return TpuRequest(name, Location(PROJECT, description.zone[0]), description, owner.labels(3600))

    return make
