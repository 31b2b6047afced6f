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
# The fields of other projects that need a feature. Without the feature, they would be faults of the configuration.
FIELDS: Final = {
    "kubernetes": {
        "config/training_e2e.yaml": ("targets.kubernetes", "ci_presets.kubernetes", "ci_presets.gke_tpu_multislice"),
        "config/inference.yaml": ("targets.kubernetes", "ci_presets.kubernetes", "matrix.workload.pod"),
        "config/notebooks.yaml": ("targets.kubernetes", "ci_presets.kubernetes", "matrix.workload.pod"),
    }
}
# The tests of discovery, of the extensions that are found, and of the rooms that use most extensions.
QUICK: Final = (
    "tests/conformance/test_commands.py",
    "tests/conformance/test_plugins.py",
    "tests/conformance/test_projects.py",
    "tests/conformance/test_sent_packages.py",
    "tests/unit/config/test_contract.py",
    "tests/unit/config/test_foreign_blocks.py",
    "tests/unit/config/test_null_fields.py",
    "tests/unit/config/test_comment_limits.py",
    "tests/unit/ground/extensions",
    "tests/unit/ground/interface",
    "tests/unit/matrix/test_plan.py",
    "tests/unit/matrix/test_targets.py",
    "tests/unit/orchestration/test_clusters.py",
    "tests/unit/orchestration/test_notifying.py",
    "tests/unit/orchestration/test_project_run.py",
    "tests/unit/reports/test_owner_pages.py",
    "tests/unit/reports/test_run_page.py",
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
        file = directory / name
        for field in fields if file.exists() else ():
            file.write_text(blanked(file.read_text(encoding="utf-8"), field), encoding="utf-8")


def blanked(text: str, path: str) -> str:
    """Return a YAML document with empty lines in place of a field, because tests name lines of it."""
    value: Any = yaml.compose(text)
    for name in path.split("."):
        ((key, value),) = (item for item in value.value if item[0].value == name)
    lines = text.splitlines()
    for number in range(key.start_mark.line, max(value.end_mark.line, key.start_mark.line + 1)):
        lines[number] = ""
    return "\n".join([*lines, ""])


def run_tests(directory: Path, *options: str) -> None:
    """Execute tests in a copy of the checkout."""
    variables = {name: value for name, value in environ.everything().items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--quiet", "-p", "no:cacheprovider", *options],
        cwd=directory,
        env=variables,
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
