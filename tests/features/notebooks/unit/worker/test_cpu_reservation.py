"""Concurrent workers use different processors as long as there are enough."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolbox.features.notebooks.worker import cpu_reservation
from toolbox.features.notebooks.worker.cpu_reservation import reserved


@pytest.fixture(autouse=True)
def _four_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_reservation, "available", lambda: [2, 3, 5, 7])


def test_concurrent_workers_get_different_processors(tmp_path: Path) -> None:
    with reserved(2, tmp_path) as first, reserved(2, tmp_path) as second:
        assert sorted(first + second) == [2, 3, 5, 7]


def test_processors_are_free_after_the_end(tmp_path: Path) -> None:
    with reserved(4, tmp_path) as first:
        pass
    with reserved(4, tmp_path) as second:
        assert second == first


def test_without_free_processors_a_worker_shares_some(tmp_path: Path) -> None:
    with reserved(3, tmp_path) as first, reserved(2, tmp_path) as second:
        assert len(set(second)) == 2
        assert set(second) - set(first) == {7}


def test_without_a_directory_for_locks_processors_are_chosen_too(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with reserved(2, tmp_path / "file/cpus") as cpus:
        assert len(set(cpus)) == 2


def test_a_machine_with_fewer_processors_gives_all(tmp_path: Path) -> None:
    with reserved(9, tmp_path) as cpus:
        assert cpus == [2, 3, 5, 7]
