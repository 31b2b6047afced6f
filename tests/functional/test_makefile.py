"""`make` installs only the core for the demo, and also the development tools for tests and lint."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from toolbox.ground.system import environ, places

ROOT = places.builtin_root()
PROTO = "toolbox/features/inference/client/fmaas/generation.proto"
CORE, DEV = "--editable .", "--editable '.[dev]'"
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a directory with the files by which `make` decides what to install."""
    for name in ("Makefile", "pyproject.toml", "hatch_build.py", PROTO):
        if not (ROOT / name).exists():  # the feature inference is left out
            continue
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def installed(checkout: Path, *targets: str, **variables: str) -> list[str]:
    """Return the installation commands that `make` would run for some targets."""
    words = ["make", "--dry-run", *targets, *(f"{name}={value}" for name, value in variables.items())]
    done = subprocess.run(words, cwd=checkout, env=environ.everything(), capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if "--editable" in line]


def finish(checkout: Path, *stamps: str) -> None:
    """Create the files that a finished installation leaves."""
    (checkout / ".venv/bin").mkdir(parents=True)
    (checkout / ".venv/bin/python").touch()
    for stamp in stamps:
        (checkout / ".venv" / stamp).touch()


def test_the_demo_installs_neither_tests_nor_linters(checkout: Path) -> None:
    (line,) = installed(checkout, "demo")
    assert line.endswith(CORE)


@pytest.mark.parametrize("name", ["inference", "notebooks"])
def test_the_demo_of_a_project_installs_its_extra_once(checkout: Path, name: str) -> None:
    finish(checkout, ".installed")
    (line,) = installed(checkout, f"demo-{name}")
    assert line.endswith(f"--editable '.[{name}]'")
    (checkout / f".venv/.installed-{name}").touch()
    assert installed(checkout, "demo", f"demo-{name}") == []


@pytest.mark.parametrize("target", ["test", "lint", "format", "bench", "setup"])
def test_development_tools_are_installed_together(checkout: Path, target: str) -> None:
    (line,) = installed(checkout, target)
    assert line.endswith(DEV)


def test_development_tools_are_added_to_the_installation_of_the_demo(checkout: Path) -> None:
    finish(checkout, ".installed")
    assert installed(checkout, "demo") == []
    (line,) = installed(checkout, "lint", "test")
    assert line.endswith(DEV)


def test_the_demo_needs_nothing_more_after_the_tests(checkout: Path) -> None:
    finish(checkout, ".installed", ".installed-dev")
    for name in ("inference", "notebooks"):
        (checkout / f".venv/.installed-{name}").touch()
    assert installed(checkout, "demo", "demo-inference", "demo-notebooks", "test", "lint") == []


@pytest.mark.parametrize("source", ["pyproject.toml", "hatch_build.py"])
def test_a_change_of_what_an_installation_reads_is_installed(checkout: Path, source: str) -> None:
    finish(checkout, ".installed", ".installed-dev")
    later = (checkout / ".venv/.installed").stat().st_mtime + 10
    os.utime(checkout / source, (later, later))
    assert len(installed(checkout, "demo")) == 1
    assert len(installed(checkout, "test")) == 1


def test_another_installer_may_be_named(checkout: Path) -> None:
    assert installed(checkout, "demo", PIP="uv pip install") == [f"uv pip install {CORE}"]
