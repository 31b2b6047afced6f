"""Environments are made by the real venv and pip, from an index on loopback."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.features.notebooks.fakes import package_index
from toolbox.features.notebooks.worker import own_libraries
from toolbox.features.notebooks.worker.environment_log import EnvironmentLog
from toolbox.features.notebooks.worker.environments import Environment, EnvironmentStore
from toolbox.features.notebooks.worker.execution_place import PlaceError
from toolbox.features.notebooks.worker.notebook_results import REPORT, TESTED, Fault
from toolbox.ground.system import places

WHEELS = dict([package_index.wheel("one", "1.5"), package_index.wheel("two", "1", requires="one>=2")])


@pytest.fixture(autouse=True)
def _only_the_index_of_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("PIP_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setattr(os, "sync", lambda: None)  # the whole machine would wait


@pytest.fixture(name="store")
def _store(tmp_path: Path) -> EnvironmentStore:
    return EnvironmentStore(
        tmp_path / "environments", EnvironmentLog(tmp_path / "environment.log", lambda _: None), 600
    )


@pytest.fixture(name="index")
def _index() -> Iterator[str]:
    with package_index.serving(WHEELS) as url:
        yield url


def used(store: EnvironmentStore, url: str, *requirements: str) -> Environment:
    with store.prepared([f"--index-url={url}", *requirements], sys.executable) as environment:
        return environment


def failure(store: EnvironmentStore, url: str, *requirements: str) -> PlaceError:
    with pytest.raises(PlaceError) as caught:
        used(store, url, *requirements)
    assert not [path for path in store.directory.iterdir() if path.is_dir()]
    return caught.value


def test_an_environment_has_the_packages_of_its_requirements(store: EnvironmentStore, index: str) -> None:
    environment = used(store, index, "one<2")
    assert "one-1.5" in environment.packages
    assert used(store, index, "one<2").seconds is None
    assert not (environment.path / "pip.log").exists()


def test_a_package_that_does_not_exist_is_named(store: EnvironmentStore, index: str) -> None:
    error = failure(store, index, "nowhere")
    assert error.fault is Fault.ENVIRONMENT
    assert "No matching distribution found for nowhere" in str(error)


def test_requirements_that_contradict_each_other_are_named(store: EnvironmentStore, index: str) -> None:
    error = failure(store, index, "two")
    assert error.fault is Fault.ENVIRONMENT
    assert "No matching distribution found for one>=2" in str(error)


def test_an_index_with_an_error_of_its_own_does_not_answer(store: EnvironmentStore, tmp_path: Path) -> None:
    with package_index.serving({}, 503) as url:
        error = failure(store, url, "one")
    assert error.fault is Fault.SERVER
    assert "the package index does not answer: Could not fetch URL" in str(error)
    assert re.search("503 (Server Error|error responses)", (tmp_path / "environment.log").read_text())


def test_an_index_that_refuses_connections_does_not_answer(store: EnvironmentStore) -> None:
    with socket.socket() as closed:  # a bound port that does not listen
        closed.bind(("127.0.0.1", 0))
        error = failure(store, f"http://127.0.0.1:{closed.getsockname()[1]}/simple", "one")
    assert error.fault is Fault.SERVER
    assert "Connection refused" in str(error)


def test_an_index_that_needs_a_password_is_named(store: EnvironmentStore) -> None:
    with package_index.serving({}, 401) as url:
        error = failure(store, url.replace("//", "//user:secret@"), "one")
    assert error.fault is Fault.ENVIRONMENT
    assert "401 Client Error" in str(error)
    assert "secret" not in str(error)


def test_a_worker_without_its_libraries_makes_an_environment_for_itself(tmp_path: Path) -> None:
    python = tmp_path / "bare/bin/python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    for name in ("src", "files"):
        (tmp_path / name).mkdir()
    (tmp_path / "src/a.sh").touch()
    runtime = {"name": "r", "python": str(python)}
    checks = [{"name": "a", "file": "a.sh"}]
    settings = {"runtime": runtime, "limits": {}, "checks": checks, "environments": str(tmp_path / "environments")}
    (tmp_path / "src/settings.json").write_text(json.dumps(settings))
    pinned = [line.split("==") for line in own_libraries.REQUIREMENTS]
    wheels = dict(package_index.wheel(name.replace("-", "_"), version) for name, version in pinned)
    command = [str(python), str(places.builtin_root() / "toolbox/features/notebooks/worker"), "../src/settings.json"]
    with package_index.serving(wheels) as url:
        environment = {**os.environ, "PIP_INDEX_URL": url}
        done = subprocess.run(
            command, cwd=tmp_path / "files", env=environment, capture_output=True, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (TESTED, "")
    assert json.loads((tmp_path / "files" / REPORT).read_text())["versions"]["papermill"] == dict(pinned)["papermill"]
    assert not list((tmp_path / "bare").rglob("papermill*"))
