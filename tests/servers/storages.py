"""Fixtures of the servers of storages, one of each kind for all tests of a process."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator

import pytest

from tests.servers import gcs, s3


@pytest.fixture(scope="session")
def _s3_server() -> Iterator[s3.Server]:
    with s3.Server() as server:
        bucket = urllib.request.Request(f"{server.endpoint}/{s3.BUCKET}", method="PUT")
        urllib.request.urlopen(bucket).close()
        yield server


@pytest.fixture
def s3_server(_s3_server: s3.Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[s3.Server]:
    """Return a server of S3 with the bucket `exports`, which this process and its children use."""
    for name, value in _s3_server.environment.items():
        monkeypatch.setenv(name, value)
    yield _s3_server
    _s3_server.reset()


@pytest.fixture(scope="session")
def _gcs_address() -> Iterator[str]:
    with gcs.served() as address:
        yield address


@pytest.fixture
def gcs_server(_gcs_address: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the address of a server of Google Cloud Storage with the bucket `exports`."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", _gcs_address)
    monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    return _gcs_address
