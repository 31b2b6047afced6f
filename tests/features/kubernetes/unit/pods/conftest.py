"""Fixtures: a tracker that follows no attempt yet, on a fake API server with the Jobs `j` and `k` and no pods."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.features.kubernetes.fakes.api_server import HOLD, Answer, ApiServer, listing
from tests.features.kubernetes.unit.pods.following import JOBS, PODS, Followed
from toolbox.features.kubernetes.api.connection import Cluster
from toolbox.features.kubernetes.pods import attempt_clock, pod_logs, tracker
from toolbox.features.kubernetes.pods.tracker import Tracker


@pytest.fixture(autouse=True)
def _without_long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_logs, "_FIRST_PAUSE", 0.02)
    monkeypatch.setattr(pod_logs, "_END_SECONDS", 0.02)


@pytest.fixture(name="followed")
def _followed(
    server: ApiServer, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Followed]:
    for path in (JOBS, PODS):
        server.answers("GET", path, listing(1))
        server.answers("WATCH", path, Answer([HOLD]))
    for job in ("j", "k"):
        server.answers("GET", f"{JOBS}/{job}", {"metadata": {"name": job, "uid": "u"}})
    monkeypatch.setattr(attempt_clock, "_CLOCK_SECONDS", 0.05)
    monkeypatch.setattr(tracker, "_DOUBT_SECONDS", 0.1)
    found = Followed(cluster, tmp_path)
    yield found
    found.close()


@pytest.fixture(name="tracker")
def _tracker(followed: Followed) -> Tracker:
    return followed.tracker
