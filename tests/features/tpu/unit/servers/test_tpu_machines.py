"""The test server of the TPU API reports why it cannot run workers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.features.tpu.servers import tpu
from tests.servers import openssh
from tests.servers.openssh import ServerError


def test_workers_need_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openssh, "TOOLS", {})
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    with pytest.raises(ServerError, match="run the tests as root"):
        tpu.Server(tmp_path)


def test_workers_need_openssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openssh, "TOOLS", {"sshd": None})
    with pytest.raises(ServerError, match="sshd not found: install"):
        tpu.Server(tmp_path)


def test_a_test_without_workers_is_skipped_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openssh, "TOOLS", {"sshd": None})
    with pytest.raises(pytest.skip.Exception, match="sshd not found"), tpu.serving(tmp_path):
        pass


def test_the_api_alone_needs_neither(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    with tpu.serving(tmp_path, has_workers=False) as server:
        assert not server.nodes()
