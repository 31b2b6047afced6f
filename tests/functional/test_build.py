"""A source distribution contains all that builds a wheel. A wheel contains generated files, and no local changes."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from toolbox.ground.system import places


def build(target: str, source: Path, directory: Path) -> Path:
    """Build a distribution without access to the network, and return its file."""
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(directory), "--target", target]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (file,) = directory.iterdir()
    return file


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return the directory of an unpacked source distribution with local changes of a developer."""
    with tarfile.open(build("sdist", places.builtin_root(), tmp_path / "sdist")) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.glob("topgallant-*")
    (source / ".gitignore").unlink(missing_ok=True)
    (source / "config/training_e2e.local.yaml").write_text("secrets: 1")
    return source


def test_a_wheel_contains_the_bundled_files_but_no_local_changes(source: Path, tmp_path: Path) -> None:
    bundled = {
        "config/training_e2e.yaml",
        "roles/host_capture_state/tasks/main.yml",
        # docs/notebooks.md says to copy such files from an installed package into a workspace
        "projects/training_e2e/orchestration.py",
        "projects/training_e2e/contracts/training.py",
        "command_args/training_e2e.yaml.j2",
    }
    with zipfile.ZipFile(build("wheel", source, tmp_path / "wheel")) as wheel:
        names = wheel.namelist()
    assert {f"toolbox/bundled/{name}" for name in bundled} <= set(names)
    assert not [name for name in names if "local.yaml" in name]


def test_a_source_distribution_contains_no_local_changes(source: Path, tmp_path: Path) -> None:
    with tarfile.open(build("sdist", source, tmp_path / "again")) as archive:
        assert not [name for name in archive.getnames() if "local.yaml" in name]


def test_an_editable_installation_uses_the_files_of_the_checkout(source: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", symlinks=True)
    (packages,) = tmp_path.glob("venv/lib/python*/site-packages")
    with zipfile.ZipFile(build("wheel:editable", source, tmp_path / "wheel")) as wheel:
        assert not [name for name in wheel.namelist() if name.startswith("toolbox/")]
        wheel.extractall(packages)
    program = "from toolbox.ground.system import places; print(places.builtin_root())"
    found = subprocess.check_output([tmp_path / "venv/bin/python", "-I", "-c", program], text=True, cwd=tmp_path)
    assert found == f"{source}\n"
