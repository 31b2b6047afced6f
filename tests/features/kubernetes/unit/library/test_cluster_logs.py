"""Log files are named after pods and containers; forged names are refused, and logs have a size limit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.features.kubernetes.fakes.api_server import Answer, ApiServer, listing
from toolbox.features.kubernetes.api.connection import Cluster
from toolbox.features.kubernetes.api.objects import Objects
from toolbox.features.kubernetes.library import _logs, cluster_logs

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


def test_the_summaries_of_the_logs_and_of_the_ends_are_written_on_request(
    server: ApiServer, cluster: Cluster, tmp_path: Path
) -> None:
    ended = {"containerStatuses": [{"name": "c", "state": {"terminated": {"exitCode": 3, "reason": "Error"}}}]}
    pods = {"metadata": {"resourceVersion": "1"}, "items": [{**pod("p", "c"), "status": {"phase": "Failed", **ended}}]}
    server.answers("GET", "/api/v1/namespaces/tests/pods", pods)
    server.answers("GET", "/api/v1/namespaces/tests/events", listing(1))
    server.answers("GET", PATH, Answer([b"one\n"], headers={"Content-Type": "text/plain"}))
    given = {name: option.get("default") for name, option in cluster_logs._OPTIONS.items()}
    files = {name: str(tmp_path / f"{name}.json") for name in ("fetched", "ended")}
    cluster_logs.work(Objects(cluster), {**given, "directory": str(tmp_path), **files})
    assert json.loads((tmp_path / "fetched.json").read_text()) == {"files": ["p/c.log"], "missing": []}
    end = {"name": "p", "node": None, "phase": "Failed", "exit_codes": {"c": 3}, "reasons": {"c": "Error"}}
    assert json.loads((tmp_path / "ended.json").read_text()) == {"pods": [end], "missing": []}
