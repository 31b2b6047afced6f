"""The worker runs the tests of a runtime, records each result at once, and says by its exit status what it could do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from tests.features.notebooks.fakes.interpreter import FakeInterpreter
from toolbox.features.notebooks.worker.notebook_results import (
    CANNOT_WRITE,
    INVALID_SETTINGS,
    REPORT,
    RESULTS,
    SAMPLES,
    TESTED,
    UNAVAILABLE,
)
from toolbox.ground.system import places

WORKER = places.builtin_root() / "toolbox/features/notebooks/worker"


@dataclass
class Attempt:
    """The directories of an attempt, and the worker in it."""

    root: Path

    def __post_init__(self) -> None:
        for name in ("src", "files"):
            (self.root / name).mkdir()

    @property
    def files(self) -> Path:
        return self.root / "files"

    def start(self, *, checks: Mapping[str, str], runtime: Mapping[str, Any], **settings: Any) -> subprocess.Popen[str]:
        """Start the worker with checks, whose names and sources are given."""
        for name, source in checks.items():
            (self.root / "src" / name).write_text(source)
        document = {
            "runtime": {"name": "r", "python": sys.executable, **runtime},
            "limits": {},
            "checks": [{"name": name.partition(".")[0], "file": name} for name in checks],
            "environments": str(self.root / "environments"),
            **settings,
        }
        (self.root / "src/settings.json").write_text(json.dumps(document))
        command = [sys.executable, str(WORKER), "../src/settings.json"]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=self.files, stdout=pipe, stderr=pipe, text=True, start_new_session=True)

    def run(self, *, runtime: Mapping[str, Any] | None = None, **settings: Any) -> subprocess.CompletedProcess[str]:
        """Run the worker until its end."""
        with self.start(checks=settings.pop("checks", {}), runtime=runtime or {}, **settings) as process:
            stdout, stderr = process.communicate()
        return subprocess.CompletedProcess((), process.returncode, stdout, stderr)

    @property
    def results(self) -> list[tuple[str, str, str, str | None]]:
        """The kind, name, outcome and fault of each result."""
        lines = (self.files / RESULTS).read_text().splitlines()
        fields = ("kind", "name", "outcome", "fault")
        return [tuple(json.loads(line)[field] for field in fields) for line in lines]

    @property
    def report(self) -> dict[str, Any]:
        return dict(json.loads((self.files / REPORT).read_text()))


@pytest.fixture(name="attempt")
def _attempt(tmp_path: Path) -> Attempt:
    return Attempt(tmp_path)


def test_shell_checks_python_checks_and_notebooks_have_results_in_this_order(attempt: Attempt) -> None:
    source = "import os\nprint(open('data').read(), os.environ['OMP_NUM_THREADS'])\nopen('new', 'w').close()"
    nbformat.write(new_notebook(cells=[new_code_cell(source)]), attempt.root / "src/good.ipynb")
    (attempt.root / "src/data").write_text("data")
    checks = {"sum.py": "def check(promises):\n    return {'outcome': 'passed'}", "disk.sh": "exit 1"}
    notebooks = [{"name": "good", "file": "good.ipynb"}, {"name": "missing", "file": "missing.ipynb"}]
    done = attempt.run(checks=checks, notebooks=notebooks, limits={"cpus": 1, "memory_bytes": 4 * 2**30})
    assert (done.returncode, done.stderr) == (TESTED, "")
    assert attempt.results == [
        ("shell", "disk", "failed", "expectation"),
        ("python", "sum", "passed", None),
        ("notebook", "good", "passed", None),
        ("notebook", "missing", "failed", "invalid_notebook"),
    ]
    assert attempt.report["is_finished"]
    assert attempt.report["versions"]["papermill"]
    assert (attempt.files / SAMPLES / "good.csv").read_text().startswith("time,cpu_percent,memory_bytes")
    assert "notebook good: passed (" in done.stdout


def test_without_the_environment_all_other_tests_are_skipped(attempt: Attempt) -> None:
    interpreter = FakeInterpreter(attempt.root, pip="echo 'ERROR: No matching distribution found for a'; exit 1")
    notebooks = [{"name": "n", "file": "n.ipynb"}]
    runtime = {"requirements": ["a"], "python": interpreter.path}
    done = attempt.run(checks={"a.sh": "", "b.py": ""}, notebooks=notebooks, runtime=runtime)
    assert done.returncode == TESTED
    assert attempt.results == [
        ("environment", "environment", "failed", "environment"),
        ("shell", "a", "skipped", None),
        ("python", "b", "skipped", None),
        ("notebook", "n", "skipped", None),
    ]
    assert "No matching distribution found for a" in attempt.report["fault"]


def test_checks_of_the_machine_run_without_the_environment(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)  # the tests may run in an activated environment
    interpreter = FakeInterpreter(attempt.root, pip="exit 1")
    runtime = {"requirements": ["a"], "python": interpreter.path}
    checks = {"disk.sh": "# Needs no environment.\necho found: ${VIRTUAL_ENV-none}; exit 1", "other.sh": ""}
    assert attempt.run(checks=checks, runtime=runtime).returncode == TESTED
    assert attempt.results == [
        ("environment", "environment", "failed", "environment"),
        ("shell", "disk", "failed", "expectation"),
        ("shell", "other", "skipped", None),
    ]
    assert '"found": "none"' in (attempt.files / RESULTS).read_text()


def test_an_environment_that_is_not_ready_in_time_is_a_test_that_failed(attempt: Attempt) -> None:
    os.mkfifo(attempt.root / "left")
    outlet = os.open(attempt.root / "left", os.O_RDONLY | os.O_NONBLOCK)
    pip = f"echo Building wheel; exec 8> {attempt.root}/left; sleep 600 & sleep 600"
    interpreter = FakeInterpreter(attempt.root, pip=pip)
    runtime = {"requirements": ["a"], "python": interpreter.path}
    done = attempt.run(
        checks={"disk.sh": "# Needs no environment."},
        notebooks=[{"name": "n", "file": "n.ipynb"}],
        runtime=runtime,
        environment_timeout=3,
    )
    assert done.returncode == TESTED
    assert attempt.results == [
        ("environment", "environment", "failed", "timeout"),
        ("shell", "disk", "passed", None),
        ("notebook", "n", "skipped", None),
    ]
    message = "the environment was not ready within 3 s (`environment_timeout`): the installation was ended"
    assert message in attempt.report["fault"]
    assert not [path for path in (attempt.root / "environments").iterdir() if path.is_dir()]
    os.set_blocking(outlet, True)
    assert os.read(outlet, 1) == b""  # all processes of pip have ended
    os.close(outlet)


def test_an_index_that_does_not_answer_is_an_exit_status_of_its_own(attempt: Attempt) -> None:
    interpreter = FakeInterpreter(attempt.root, pip="echo 'ERROR: HTTP error 503 while getting https://h/a'; exit 1")
    done = attempt.run(checks={"a.sh": ""}, runtime={"requirements": ["a"], "python": interpreter.path})
    assert done.returncode == UNAVAILABLE
    assert attempt.results == [("environment", "environment", "error", "server"), ("shell", "a", "skipped", None)]


def test_the_environment_of_the_runtime_is_the_first_test(attempt: Attempt) -> None:
    interpreter = FakeInterpreter(attempt.root)
    runtime = {"requirements": ["a"], "python": interpreter.path}
    assert attempt.run(checks={"a.sh": "echo found: $VIRTUAL_ENV"}, runtime=runtime).returncode == TESTED
    assert attempt.results == [("environment", "environment", "passed", None), ("shell", "a", "passed", None)]
    assert attempt.report["environment"] == interpreter.made[0]
    assert attempt.report["environment_seconds"] > 0


@pytest.mark.parametrize("document", ["", "[]", '{"runtime": {}}', '{"runtime": {"name": "r"}, "unknown": 1}'])
def test_invalid_settings_are_an_error(attempt: Attempt, document: str) -> None:
    (attempt.root / "src/settings.json").write_text(document)
    done = subprocess.run(
        [sys.executable, WORKER, "../src/settings.json"], cwd=attempt.files, capture_output=True, text=True, check=False
    )
    assert done.returncode == INVALID_SETTINGS
    assert done.stderr.startswith("notebook_worker: settings.json: ")


def test_a_full_disk_ends_the_worker(attempt: Attempt) -> None:
    (attempt.files / RESULTS).symlink_to("/dev/full")
    done = attempt.run(checks={"a.sh": ""})
    assert done.returncode == CANNOT_WRITE
    assert done.stderr == "notebook_worker: the results cannot be written: No space left on device\n"


def test_a_signal_ends_the_checks_and_keeps_the_results(attempt: Attempt) -> None:
    for name in ("started", "left"):
        os.mkfifo(attempt.root / name)
    outlet = os.open(attempt.root / "left", os.O_RDONLY | os.O_NONBLOCK)
    checks = {"a.sh": "", "b.sh": f"exec 9> {attempt.root}/left; echo > {attempt.root}/started; sleep 600"}
    with attempt.start(checks=checks, runtime={}) as process:
        (attempt.root / "started").read_text()
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    assert attempt.results == [("shell", "a", "passed", None)]
    os.set_blocking(outlet, True)
    assert os.read(outlet, 1) == b""  # the check has ended
    os.close(outlet)


def test_a_daemon_of_a_notebook_ends_with_the_notebook(attempt: Attempt) -> None:
    """The next notebook would share the processors and the memory of the machine with the daemon."""
    pids = attempt.root / "pids"
    daemon = f"(echo $BASHPID >> {pids}; exec sleep 600) & (echo $BASHPID >> {pids}; exec env -i setsid sleep 600) &"
    read = f"import pathlib, subprocess, time\ndef pids(): return open({str(pids)!r}).read().split()\n"
    source = (
        f"{read}open({str(pids)!r}, 'w').close()\nsubprocess.run(['setsid', 'bash', '-c', {daemon!r}])\n"
        "while len(pids()) < 2: time.sleep(0.05)"
    )
    look = f"{read}assert not [pid for pid in pids() if pathlib.Path('/proc', pid).exists()]"
    for name, code in (("daemon", source), ("next", look)):
        nbformat.write(new_notebook(cells=[new_code_cell(code)]), attempt.root / f"src/{name}.ipynb")
    notebooks = [{"name": name, "file": f"{name}.ipynb"} for name in ("daemon", "next")]
    assert attempt.run(notebooks=notebooks).returncode == TESTED
    assert len(pids.read_text().split()) == 2
    assert attempt.results == [("notebook", "daemon", "passed", None), ("notebook", "next", "passed", None)]


def test_a_signal_ends_a_kernel_and_keeps_the_outputs(attempt: Attempt) -> None:
    for name in ("started", "left"):
        os.mkfifo(attempt.root / name)
    outlet = os.open(attempt.root / "left", os.O_RDONLY | os.O_NONBLOCK)
    root = str(attempt.root)
    source = (
        f"left = open({root!r} + '/left', 'w')\nopen({root!r} + '/started', 'w').close()\nimport time; time.sleep(600)"
    )
    cells = [new_code_cell("print('first')"), new_code_cell(source)]
    nbformat.write(new_notebook(cells=cells), attempt.root / "src/n.ipynb")
    with attempt.start(checks={}, runtime={}, notebooks=[{"name": "n", "file": "n.ipynb"}]) as process:
        (attempt.root / "started").read_text()
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    executed = nbformat.read(attempt.files / "executed/n.ipynb", as_version=4)
    assert executed.cells[0].outputs[0].text == "first\n"
    os.set_blocking(outlet, True)
    assert os.read(outlet, 1) == b""  # the kernel has ended
    os.close(outlet)


def test_the_worker_ignores_another_topgallant_of_its_python(attempt: Attempt, tmp_path: Path) -> None:
    (tmp_path / "other/toolbox").mkdir(parents=True)
    (tmp_path / "other/toolbox/__init__.py").write_text("raise ImportError('the other one')")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path / "other"))
        assert attempt.run(checks={"a.sh": ""}).returncode == TESTED
