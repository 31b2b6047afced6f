"""Log files are named after pods and containers; forged names are refused, and logs have a size limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.api_server import Answer, ApiServer
from toolbox.ansible.modules import _logs
from toolbox.kubernetes.api.connection import Cluster

PATH = "/api/v1/namespaces/tests/pods/p/log"


def pod(name: str, container: str) -> dict[str, object]:
    return {"metadata": {"name": name, "namespace": "tests"}, "spec": {"containers": [{"name": container}]}}


@pytest.mark.parametrize(("name", "container"), [("../p", "c"), ("p", "../../c"), ("/p", "c"), ("p\n", "c"), ("", "c")])
def test_a_forged_name_is_not_used_as_a_file_name(cluster: Cluster, tmp_path: Path, name: str, container: str) -> None:
    written, _ = _logs.save(cluster, [pod(name, container)], tmp_path / "logs", _logs.LogSelection())
    assert (written, list(tmp_path.rglob("*.log"))) == ([], [])


def test_a_log_is_requested_up_to_a_limit(server: ApiServer, cluster: Cluster, tmp_path: Path) -> None:
    server.answers("GET", PATH, Answer([b"one\n"], headers={"Content-Type": "text/plain"}))
    written, _ = _logs.save(cluster, [pod("p", "c")], tmp_path, _logs.LogSelection())
    assert written == ["p/c.log"]
    assert server.requests[0].get("limitBytes") == str(1 << 28)
