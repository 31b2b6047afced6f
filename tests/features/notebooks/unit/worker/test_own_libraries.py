"""The worker starts again in an environment of its own if its Python lacks a library, and keeps that environment."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.features.notebooks.fakes.interpreter import FakeInterpreter
from toolbox.features.notebooks.worker import own_libraries
from toolbox.features.notebooks.worker.environment_log import EnvironmentLog
from toolbox.features.notebooks.worker.environments import EnvironmentStore
from toolbox.features.notebooks.worker.file_locks import FileLock


@pytest.fixture(name="store")
def _store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EnvironmentStore:
    monkeypatch.setattr(os, "sync", lambda: None)
    monkeypatch.setattr(sys, "executable", FakeInterpreter(tmp_path).path)
    return EnvironmentStore(
        tmp_path / "environments", EnvironmentLog(tmp_path / "environment.log", lambda _: None), 600
    )


class Started(BaseException):
    """Raised instead of replacing the process."""


def test_a_python_with_the_libraries_is_used(store: EnvironmentStore) -> None:
    own_libraries.ensure(store, ["worker", "settings.json"])
    assert not store.directory.exists()


def test_the_environment_stays_locked_for_the_program_that_replaces_the_worker(
    store: EnvironmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def replace(program: Path, command: list[str]) -> None:
        assert str(program) == command[0]
        commands.append(command)
        raise Started

    monkeypatch.setattr(own_libraries, "missing", lambda: ["papermill"])
    monkeypatch.setattr(os, "execv", replace)
    monkeypatch.setenv(own_libraries._LOCK_VARIABLE, "")
    monkeypatch.setenv(own_libraries._STARTED_VARIABLE, "")
    with pytest.raises(Started):
        own_libraries.ensure(store, ["worker", "settings.json"])
    ((python, *arguments),) = commands
    assert Path(python).is_relative_to(store.directory)
    assert arguments == ["worker", "settings.json"]
    lock = int(os.environ[own_libraries._LOCK_VARIABLE])
    assert os.get_inheritable(lock)
    (path,) = store.directory.glob("*.lock")
    assert not FileLock(path).acquire(exclusive=True)

    monkeypatch.setattr(own_libraries, "missing", list)
    own_libraries.ensure(store, ["worker", "settings.json"])  # by the program that replaced the worker
    assert not os.get_inheritable(lock)  # kernels do not get it
    assert own_libraries._LOCK_VARIABLE not in os.environ
    assert own_libraries.started() == store.started  # both environments together have one time limit
    assert own_libraries._STARTED_VARIABLE not in os.environ
    os.close(lock)
