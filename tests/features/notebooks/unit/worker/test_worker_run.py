"""A worker without a place for its tests records why, so that the cause of the fault decides the verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NoReturn

import pytest

from toolbox.features.notebooks.worker import own_libraries, server_place
from toolbox.features.notebooks.worker.execution_place import PlaceError
from toolbox.features.notebooks.worker.notebook_results import RESULTS, TESTED, UNAVAILABLE, Fault
from toolbox.features.notebooks.worker.notebook_settings import Settings
from toolbox.features.notebooks.worker.worker_run import WorkerRun


@pytest.mark.parametrize(("fault", "status"), [(Fault.NO_KERNEL, TESTED), (Fault.SERVER, UNAVAILABLE)])
def test_tests_without_a_place_end_with_the_fault_of_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault, status: int
) -> None:
    def opened(*_: object) -> NoReturn:
        raise PlaceError(fault, "no kernel r")

    monkeypatch.setattr(server_place, "opened", opened)
    monkeypatch.setattr(own_libraries, "ensure", lambda *_: None)
    settings = Settings.from_json(
        {
            "runtime": {"name": "r", "kernel": "r"},
            "notebooks": [{"name": "train", "file": "train.ipynb"}],
            "environments": str(tmp_path / "environments"),
            "uses_server": True,
        }
    )
    assert WorkerRun(settings, sources=tmp_path, directory=tmp_path).run() == status
    (record,) = [json.loads(line) for line in (tmp_path / RESULTS).read_text().splitlines()]
    assert (record["outcome"], record["fault"]) == ("error", fault.value)
    assert record["message"] == "the runtime could not be prepared: no kernel r"
