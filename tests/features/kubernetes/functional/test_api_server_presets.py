"""Runs without a comment may select their presets by the API server of the kubeconfig."""

from __future__ import annotations

import json
from pathlib import Path

from tests.functional.test_launch_presets import presets, run
from tests.functional.test_launch_presets import ruled as ruled  # noqa: PLC0414  # re-exports the fixture
from toolbox.testing import Workspace


def test_the_api_server_selects_a_platform(ruled: Workspace, tmp_path: Path) -> None:
    kubeconfig = kubeconfig_of(tmp_path, "https://API.metal.lab:6443")
    run(ruled, KUBECONFIG=str(kubeconfig))
    assert presets(ruled) == ["metal"]


def kubeconfig_of(directory: Path, server: str) -> Path:
    """Write a kubeconfig for an API server that gets no request."""
    file = directory / "kubeconfig"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "lab",
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "ann"}}],
        "clusters": [{"name": "lab", "cluster": {"server": server}}],
        "users": [{"name": "ann", "user": {"token": "t"}}],
    }
    file.write_text(json.dumps(content))
    return file
