"""A source distribution contains all that builds a wheel, and a wheel contains what the build generates."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from toolbox.system import places


def build(target: str, source: Path, directory: Path) -> Path:
    """Build a distribution without access to the network, and return its file."""
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(directory), "--target", target]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (file,) = directory.iterdir()
    return file


def test_a_wheel_contains_the_generated_messages(tmp_path: Path) -> None:
    with tarfile.open(build("sdist", places.builtin_root(), tmp_path / "sdist")) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.glob("topgallant-*")
    messages = "toolbox/inference_client/fmaas/generation_pb2.py"
    assert not (source / messages).exists()
    with zipfile.ZipFile(build("wheel", source, tmp_path / "wheel")) as wheel:
        assert {messages, f"{messages}i"} <= set(wheel.namelist())
        assert wheel.read(messages) == (places.builtin_root() / messages).read_bytes()
