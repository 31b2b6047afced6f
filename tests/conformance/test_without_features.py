"""The tests of the core pass in a copy of the checkout in which a feature is missing, with its project and its tests.

A test run leaves out one feature, by turns of days, and executes the tests that depend on which extensions there are;
all tests of the core are imported. `make test-without-features` leaves out each feature, and then all features, and
executes all tests of the core.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from toolbox.ground.system import environ, places

ROOT: Final = places.builtin_root()
FEATURES: Final = sorted(file.parent.name for file in ROOT.glob("toolbox/features/*/__init__.py"))
ALL: Final = "all features"
SWITCH: Final = "TOPGALLANT_TEST_WITHOUT"
"""With the value `each`, each feature is left out, whatever the day, and all tests of the core are executed."""
PROJECTS: Final = {"inference": "inference", "notebooks": "notebooks", "tpu": "tpu_ci"}
# The fields of projects of the core that need a feature.
FIELDS: Final = {
    "kubernetes": {
        "config/training_e2e.yaml": (
            ("targets", "kubernetes"),
            ("ci_presets", "kubernetes"),
            ("ci_presets", "gke_tpu_multislice"),
        )
    }
}
# The tests of discovery, of the extensions that are found, and of the rooms that use most extensions.
QUICK: Final = (
    "tests/conformance/test_commands.py",
    "tests/conformance/test_plugins.py",
    "tests/conformance/test_projects.py",
    "tests/conformance/test_sent_packages.py",
    "tests/unit/config",
    "tests/unit/ground/extensions",
    "tests/unit/ground/interface",
    "tests/unit/matrix/test_plan.py",
    "tests/unit/matrix/test_targets.py",
    "tests/unit/orchestration",
    "tests/unit/reports",
)


def turns() -> list[str]:
    """Return what to leave out, one after the other."""
    everything = [*FEATURES, ALL] if FEATURES else []
    if environ.get(SWITCH) == "each":
        return everything
    today = datetime.now(UTC).toordinal()
    return [everything[today % len(everything)]] if everything else []


def copy_without(feature: str, directory: Path) -> None:
    """Copy the checkout, with changes that are not committed, without a feature."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    generated = (str(file.relative_to(ROOT)) for file in ROOT.glob("toolbox/features/*/**/*_pb2.py*"))
    for name in {*names, *generated} - {""}:
        if (ROOT / name).is_file():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, directory / name, follow_symlinks=False)
    (directory / Path(__file__).relative_to(ROOT)).unlink()
    shutil.rmtree(directory / "tests/features/together")
    for left_out in FEATURES if feature == ALL else [feature]:
        leave_out(left_out, directory)


def leave_out(feature: str, directory: Path) -> None:
    """Remove a feature from a copy of the checkout."""
    for folder in (f"toolbox/features/{feature}", f"tests/features/{feature}"):
        shutil.rmtree(directory / folder)
    if project := PROJECTS.get(feature):
        shutil.rmtree(directory / "projects" / project)
        (directory / f"config/{project}.yaml").unlink()
        (directory / f"command_args/{project}.yaml.j2").unlink()
    for name, fields in FIELDS.get(feature, {}).items():
        content: dict[str, Any] = yaml.safe_load((directory / name).read_text(encoding="utf-8"))
        for block, field in fields:
            del content[block][field]
        (directory / name).write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")


def run_tests(directory: Path, *options: str) -> None:
    """Execute tests in a copy of the checkout."""
    variables = {name: value for name, value in environ.everything().items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--quiet", "-p", "no:cacheprovider", *options],
        cwd=directory,
        env={**variables, "PYTHONPATH": str(directory)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20_000:]


@pytest.mark.parametrize("feature", turns())
def test_the_core_works_without_a_feature(tmp_path: Path, feature: str) -> None:
    copy_without(feature, tmp_path)
    core = ("tests", "--ignore=tests/features")
    if environ.get(SWITCH) == "each":
        run_tests(tmp_path, *core, "--numprocesses=auto", "--dist=worksteal")
    else:
        run_tests(tmp_path, *core, "--collect-only", "-qq")
        run_tests(tmp_path, *QUICK)
